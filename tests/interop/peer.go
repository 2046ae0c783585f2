// The Go side of the interop test: a stock frisbee-go peer, built once against each of the two wire versions (run.sh, *.mod).
// frisbee_peer.c is the other side and describes the three sessions A, B and C; the names and numbers here are the same.
//
//	peer server FILE           writes its address to FILE and serves one C client
//	peer client FILE           reads the server's address from FILE
//	peer streamserver FILE     the same for streams.go, against frisbee_streams.c
//	peer streamclient FILE
//	peer subscriber FILE       pubsub.go, against the broker of frisbee_pubsub.c
//	peer nobroker FILE         a server that is no broker, for its client
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/loopholelabs/frisbee-go"
	"github.com/loopholelabs/frisbee-go/pkg/metadata"
	"github.com/loopholelabs/frisbee-go/pkg/packet"
)

const (
	opData = uint16(iota + 10)
	opEcho
	opAsk
	opStart
	opSync
	opSwitch
)

const (
	packets    = 10000
	calls      = 5000
	asks       = 2000
	sessions   = 3
	raw        = 10 * 1024 * 1024
	quiet      = 20 * time.Second
	limit      = 80 * time.Second
	packetMax  = 5 * 1024 * 1024
	offsets    = 65521
	tickerTime = 1200 * time.Millisecond // more than two PINGs of frisbee-go's timer
)

var (
	pattern  [packetMax + offsets]byte
	failures atomic.Int32
	running  sync.WaitGroup
	role     string
	version  = "unknown" // of frisbee-go, as it was linked
)

func makePattern() {
	x := uint32(2463534242)
	for i := range pattern {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		pattern[i] = byte(x >> 24)
	}
}

func content(number, size int) []byte {
	at := number % offsets * 7919 % offsets
	return pattern[at : at+size]
}

func sizeOf(number int) int {
	edges := [10]int{16, 64, 256, 1024, 4096, 16384, 65536, 131072, 262144, 1048576}
	switch {
	case number%2000 == 777:
		return packetMax - number/2000%2
	case number%50 == 0:
		return edges[number/50%10] + 1 - number/500%12
	}
	return int(uint32(number) * 2654435761 >> 24)
}

func inverted(data, original []byte) bool {
	for i := range data {
		if data[i]^original[i] != 0xFF {
			return false
		}
	}
	return len(data) == len(original)
}

// The ids of requests are all different, and 0, 15 and 65535 come first.
func askID(number int) uint16 {
	switch number {
	case 1:
		return 15
	case 2:
		return 65535
	}
	return uint16(number * 31)
}

type session struct {
	way                    byte
	write                  func(*packet.Packet) error
	raw                    func() net.Conn
	closed                 <-chan struct{} // closed by Raw() too
	got, wrong, syncs      int             // used by the handlers, which run one after the other
	answered               int
	answers                map[uint16]int // asks that wait, by id
	allAnswered, switching chan struct{}
	quietSince             time.Time
}

func newSession(way byte) *session {
	s := &session{way: way, answers: map[uint16]int{}, allAnswered: make(chan struct{}), switching: make(chan struct{})}
	for i := 0; i < asks; i++ {
		s.answers[askID(i)] = i
	}
	return s
}

func verdict(ok bool, where string, format string, arguments ...any) {
	word := "ok  "
	if !ok {
		word = "FAIL"
		failures.Add(1)
	}
	fmt.Printf("%s Go %s %s, %s: %s\n", word, version, role, where, fmt.Sprintf(format, arguments...))
}

func (s *session) report(ok bool, format string, arguments ...any) {
	verdict(ok, string(s.way), format, arguments...)
}

func (s *session) send(operation, id uint16, payload []byte) bool {
	p := packet.Get()
	defer packet.Put(p)
	p.Metadata.Id = id
	p.Metadata.Operation = operation
	p.Metadata.ContentLength = uint32(len(payload))
	p.Content.Write(payload)
	if err := s.write(p); err != nil {
		s.report(false, "write of operation %d, id %d: %v", operation, id, err)
		return false
	}
	return true
}

func (s *session) await(event <-chan struct{}, what string) bool {
	select {
	case <-event:
		return true
	case <-s.closed:
		s.report(false, "closed before %s", what)
	case <-time.After(limit):
		s.report(false, "no %s", what)
	}
	return false
}

// A session from behind START to the end of its raw bytes.
func (s *session) run() {
	defer running.Done()
	if s.way == 'A' {
		for i := 0; i < asks; i++ {
			if !s.send(opAsk, askID(i), content(i, sizeOf(i))) {
				return
			}
		}
		if !s.await(s.allAnswered, "all answers") {
			return
		}
		for i := 0; i < packets; i++ {
			if !s.send(opData, uint16(i), content(i+packets, sizeOf(i))) {
				return
			}
		}
	}
	if s.way == 'B' && !s.send(opSwitch, 1, nil) {
		return
	}
	if s.way != 'C' && !s.await(s.switching, "SWITCH") {
		return
	}
	// What of Raw() can hurt, in both versions. It ends the packet side before anything else, so no PING leaves once it has begun, and it
	// flushes what was written before. But its read loop parses whatever arrives until it stops: raw bytes are lost there, and so is a
	// header of which only a part has come. Hence nobody writes raw to a Go peer before that peer's first raw byte. The loop also sets a
	// read deadline of 5 s before each read; when this overtakes the deadline by which Raw() stops it, Raw() returns 5 s late.
	if s.way == 'B' {
		time.Sleep(tickerTime)
	}
	conn := s.raw()
	defer conn.Close()
	var head []byte
	if s.way == 'C' {
		head = header(opSwitch)
	}
	s.exchange(conn, head)
}

// header is an empty packet with id 0, in the wire of the linked version.
func header(operation uint16) []byte {
	encoded, err := metadata.Encode(0, operation, 0)
	if err != nil {
		panic(err)
	}
	return encoded[:]
}

// exchange sends head, the raw bytes and their hash, and receives as much. The raw bytes are the pattern from its third byte on.
func (s *session) exchange(conn net.Conn, head []byte) {
	_ = conn.SetDeadline(time.Now().Add(limit))
	sent := make(chan error, 1)
	go func() {
		ours := bytes.Repeat(pattern[2:packetMax+2], raw/packetMax)
		hash := fnv.New64a()
		hash.Write(ours)
		_, err := conn.Write(hash.Sum(append(head, ours...)))
		if err == nil {
			err = conn.(*net.TCPConn).CloseWrite()
		}
		sent <- err
	}()
	in := bufio.NewReaderSize(conn, 65536)
	if s.way == 'C' { // C's answer to a PING may have crossed our Raw(); in A and B there is none on the way
		for {
			first, _ := in.Peek(metadata.Size)
			if !bytes.Equal(first, header(frisbee.PING)) && !bytes.Equal(first, header(frisbee.PONG)) {
				break
			}
			_, _ = in.Discard(metadata.Size)
		}
	}
	hash := fnv.New64a()
	n, err := io.CopyN(hash, in, raw)
	theirs := make([]byte, hash.Size())
	if err == nil {
		_, err = io.ReadFull(in, theirs)
	}
	_, end := in.ReadByte()
	sendErr := <-sent
	s.report(err == nil && sendErr == nil && end == io.EOF && bytes.Equal(theirs, hash.Sum(nil)),
		"Raw(), then raw bytes both ways: %d of %d from C, with the right hash, and its end (%v, %v)", n, raw, err, sendErr)
}

// Handlers, the same for client and server. They find their session in the context.

type sessionKey struct{}

func of(ctx context.Context) *session { return ctx.Value(sessionKey{}).(*session) }

func onData(ctx context.Context, p *packet.Packet) (*packet.Packet, frisbee.Action) {
	s := of(ctx)
	number := s.got
	s.got++
	if number >= packets || p.Metadata.Id != uint16(number) || !bytes.Equal(p.Content.Bytes(), content(number, sizeOf(number))) {
		if s.wrong++; s.wrong == 1 {
			s.report(false, "packet %d: id %d, %d bytes", number, p.Metadata.Id, p.Content.Len())
		}
	}
	return nil, frisbee.NONE
}

func onEcho(_ context.Context, p *packet.Packet) (*packet.Packet, frisbee.Action) {
	content := p.Content.Bytes()
	for i := range content {
		content[i] ^= 0xFF
	}
	return p, frisbee.NONE
}

// The answer to one of our requests.
func onAsk(ctx context.Context, p *packet.Packet) (*packet.Packet, frisbee.Action) {
	s := of(ctx)
	number, waits := s.answers[p.Metadata.Id]
	delete(s.answers, p.Metadata.Id)
	if !waits || !inverted(p.Content.Bytes(), content(number, sizeOf(number))) {
		if s.wrong++; s.wrong == 1 {
			s.report(false, "answer with id %d, %d bytes", p.Metadata.Id, p.Content.Len())
		}
	}
	if s.answered++; s.answered == asks {
		s.report(s.wrong == 0 && len(s.answers) == 0, "%d requests to C, ids 0, 15 and 65535 among them, each answered once", asks)
		close(s.allAnswered)
	}
	return nil, frisbee.NONE
}

// C has sent all its packets; the second time, it has been silent since.
func onSync(ctx context.Context, p *packet.Packet) (*packet.Packet, frisbee.Action) {
	s := of(ctx)
	if s.syncs++; s.syncs == 1 {
		s.report(s.got == packets && s.wrong == 0, "%d packets from C in order, byte for byte (%d wrong)", s.got, s.wrong)
		s.quietSince = time.Now()
	} else {
		silence := time.Since(s.quietSince)
		s.report(silence >= quiet && s.got == packets && s.answered == asks, "%d s of silence survived", int(silence.Seconds()))
	}
	p.Content.Reset()
	p.Content.Write(binary.BigEndian.AppendUint32(nil, uint32(s.got)))
	p.Metadata.ContentLength = uint32(p.Content.Len())
	return p, frisbee.NONE
}

// Raw() waits for the goroutine of a client's handlers, so it is called from another.
func onSwitch(ctx context.Context, _ *packet.Packet) (*packet.Packet, frisbee.Action) {
	close(of(ctx).switching)
	return nil, frisbee.NONE
}

// The first packet of a C client.
func onStart(ctx context.Context, p *packet.Packet) (*packet.Packet, frisbee.Action) {
	s := of(ctx)
	s.way = p.Content.Bytes()[0]
	go s.run()
	return nil, frisbee.NONE
}

var handlers = frisbee.HandlerTable{opData: onData, opEcho: onEcho, opAsk: onAsk, opStart: onStart, opSync: onSync, opSwitch: onSwitch}

func serve(file string) error {
	server, err := frisbee.NewServer(handlers, context.Background())
	if err != nil {
		return err
	}
	server.SetConcurrency(1) // handlers in the order of their packets
	server.ConnContext = func(ctx context.Context, conn *frisbee.Async) context.Context {
		s := newSession('?')
		s.write, s.raw, s.closed = conn.WritePacket, conn.Raw, conn.CloseChannel()
		return context.WithValue(ctx, sessionKey{}, s)
	}
	listener, err := listen(file)
	if err != nil {
		return err
	}
	go func() { _ = server.StartWithListener(listener) }()
	running.Wait()
	return nil
}

// listen takes any port and writes the address to the file, whole: who sees the file sees all of it.
func listen(file string) (net.Listener, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(file+".new", []byte(listener.Addr().String()+"\n"), 0o644); err != nil {
		return nil, err
	}
	return listener, os.Rename(file+".new", file)
}

func connect(file string) error {
	address, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for way := byte('A'); way < 'A'+sessions; way++ {
		s := newSession(way)
		client, err := frisbee.NewClient(handlers, context.WithValue(context.Background(), sessionKey{}, s))
		if err != nil {
			return err
		}
		if err := client.Connect(strings.TrimSpace(string(address))); err != nil {
			return err
		}
		s.write, s.closed = client.WritePacket, client.CloseChannel()
		s.raw = func() net.Conn {
			conn, _ := client.Raw()
			return conn
		}
		if s.send(opStart, 15, append([]byte{way}, version...)) {
			go s.run()
		} else {
			running.Done()
		}
	}
	running.Wait()
	return nil
}

func main() {
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, module := range build.Deps {
			if module.Path == "github.com/loopholelabs/frisbee-go" {
				version = module.Version
			}
		}
	}
	time.AfterFunc(limit, func() {
		fmt.Printf("FAIL Go %s %s: not finished\n", version, role)
		os.Exit(1)
	})
	makePattern()
	running.Add(sessions)
	roles := map[string]func(string) error{"server": serve, "client": connect, "streamserver": serveStreams, "streamclient": connectStreams,
		"subscriber": subscriber, "nobroker": noBroker}
	err := fmt.Errorf("usage: peer ROLE FILE")
	if len(os.Args) == 3 && roles[os.Args[1]] != nil {
		role = os.Args[1]
		err = roles[role](os.Args[2])
	}
	if err != nil {
		fmt.Printf("FAIL Go %s %s: %v\n", version, role, err)
		os.Exit(1)
	}
	if failures.Load() != 0 {
		os.Exit(1)
	}
}
