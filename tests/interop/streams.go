// Streams: the Go side of frisbee_streams.c, which describes the sessions A to H; the names and numbers here are the same.
//
// Faults of the stock library that the script goes around, in both versions:
//   - Stream.Close() while a message for that stream comes in: either the read loop is about to queue it and then closes the whole
//     connection, or it opens a new stream that its sender believes closed. So Go closes a stream only when nothing is under way to it.
//   - Async.close() waits for the read loop with the streams locked, and the read loop locks them for each message: when a goroutine other
//     than the read loop notices first that a connection is lost, they wait for each other and its streams never end. So in G and H only
//     the connection's own end is waited for.
package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/loopholelabs/frisbee-go"
	"github.com/loopholelabs/frisbee-go/pkg/packet"
)

const (
	opFinish = opSwitch + 1
	messages = 100
	half     = 50
	ahead    = 20
	cutAfter = 3000
	floodMax = 2000000         // messages, if nobody closes the stream
	confirm  = 3 * time.Second // until C is sure that nothing more comes for a closed stream
	ownHalf  = 32768           // ids from here on are opened by the side that accepted
)

// Streams opened by Go and by C in the sessions A to H.
var streamWays = [...]struct{ ours, theirs int32 }{{0, 1000}, {1000, 0}, {1000, 1000}, {220, 200}, {20, 20}, {4, 0}, {50, 50}, {50, 50}}

type plan int

const (
	openerCloses plan = iota
	echoerCloses
	oneWay
	halfway
	flood
	endless
)

func planOf(way byte, id uint16) plan {
	switch {
	case way == 'D' && id%ownHalf < 20000 && id%2 == 1:
		return halfway
	case way == 'D' && id%ownHalf < 20000:
		return oneWay
	case way >= 'G':
		return endless
	case id%2 == 1:
		return echoerCloses
	}
	return openerCloses
}

func messageSize(id uint16, index int) int {
	edges := [8]int{65536, 1, 16384, 65535, 4096, 32768, 16385, 65526}
	if index == int(id)%messages {
		return edges[id/8%8]
	}
	return 1 + int((uint32(id)*messages+uint32(index))*2654435761>>24)
}

func message(id uint16, index int) []byte {
	return content(int(id)*messages+index, messageSize(id, index))
}

type streamSession struct {
	way             byte
	base            uint16 // of the ids that Go opens
	open            func(uint16) *frisbee.Stream
	write           func(*packet.Packet) error
	closed          <-chan struct{}
	cut             func()
	started, done   chan struct{} // the way is known; all streams have ended
	opened, ended   atomic.Int32
	received, wrong atomic.Int32
	seen            [65536]atomic.Bool // ids that C opened
	floodClosed     atomic.Int32
}

func newStreamSession(base uint16) *streamSession {
	return &streamSession{base: base, started: make(chan struct{}), done: make(chan struct{})}
}

func (s *streamSession) verdict(ok bool, format string, arguments ...any) {
	verdict(ok, "streams "+string(s.way), format, arguments...)
}

// fail tells the first thing that is wrong; the others are counted.
func (s *streamSession) fail(stream *frisbee.Stream, what string, index int, err error) {
	if s.wrong.Add(1) == 1 {
		s.verdict(false, "%s: stream %d, message %d, %v", what, stream.ID(), index, err)
	}
}

func (s *streamSession) send(stream *frisbee.Stream, index int, echo bool) error {
	p := packet.Get()
	defer packet.Put(p)
	p.Content.Write(message(stream.ID(), index))
	if echo {
		for i := range p.Content.Bytes() {
			p.Content.Bytes()[i] ^= 0xFF
		}
	}
	p.Metadata.ContentLength = uint32(p.Content.Len())
	return stream.WritePacket(p)
}

// receive takes the next message, which must be the one with this index.
func (s *streamSession) receive(stream *frisbee.Stream, index int, echo bool) error {
	p, err := stream.ReadPacket()
	if err != nil {
		return err
	}
	defer packet.Put(p)
	expected := message(stream.ID(), index)
	if echo && !inverted(p.Content.Bytes(), expected) || !echo && !bytes.Equal(p.Content.Bytes(), expected) {
		s.fail(stream, "not the message that should have come", index, nil)
	}
	if s.received.Add(1) == cutAfter && s.way == 'G' {
		s.cut()
	}
	return nil
}

// ends waits for C's close, which must come next.
func (s *streamSession) ends(stream *frisbee.Stream, index int) {
	if p, err := stream.ReadPacket(); p != nil || !errors.Is(err, frisbee.StreamClosed) {
		s.fail(stream, "a message, or an error, in place of the close", index, err)
	}
}

func (s *streamSession) close(stream *frisbee.Stream) {
	if err := stream.Close(); err != nil {
		s.fail(stream, "Close", messages, err)
	}
}

func (s *streamSession) streamEnded() {
	way := streamWays[s.way-'A']
	if s.ended.Add(1) == way.ours+way.theirs {
		close(s.done)
	}
}

// initiate plays a stream that Go opens, from its first message to its end.
func (s *streamSession) initiate(id uint16) {
	s.opened.Add(1)
	defer s.streamEnded()
	stream, plan := s.open(id), planOf(s.way, id)
	sent := make(chan error, 1)
	go func() {
		first := messages
		if plan == endless {
			first = ahead
		}
		var err error
		for i := 0; i < first && err == nil; i++ {
			err = s.send(stream, i, false)
		}
		sent <- err
	}()
	echoes := messages
	switch plan {
	case oneWay:
		echoes = 0
	case halfway:
		echoes = half
	case endless:
		err := <-sent
		for i := 0; err == nil; i++ {
			if err = s.receive(stream, i, true); err == nil {
				err = s.send(stream, ahead+i, false)
			}
		}
		return
	}
	for i := 0; i < echoes; i++ {
		if err := s.receive(stream, i, true); err != nil {
			s.fail(stream, "no echo", i, err)
			return
		}
	}
	if plan == halfway || plan == echoerCloses {
		s.ends(stream, echoes)
	}
	if err := <-sent; err != nil && !(plan == halfway && errors.Is(err, frisbee.StreamClosed)) {
		s.fail(stream, "write", messages, err)
	}
	if plan == openerCloses || plan == oneWay {
		s.close(stream)
	}
}

// echo plays a stream that C has opened.
func (s *streamSession) echo(stream *frisbee.Stream) {
	select {
	case <-s.started:
	case <-time.After(limit):
		return
	}
	s.opened.Add(1)
	defer s.streamEnded()
	if s.seen[stream.ID()].Swap(true) {
		s.fail(stream, "opened once more", 0, nil)
		return
	}
	plan := planOf(s.way, stream.ID())
	count := messages
	switch plan {
	case halfway:
		count = half
	case endless:
		count = 1 << 30
	}
	for i := 0; i < count; i++ {
		err := s.receive(stream, i, false)
		if err == nil {
			if err = s.send(stream, i, true); plan == oneWay && errors.Is(err, frisbee.StreamClosed) {
				err = nil // C closed behind its last message; it is all here and goes on being read
			}
		}
		if plan == endless && err != nil {
			return
		}
		if err != nil {
			s.fail(stream, "echo", i, err)
			return
		}
	}
	if plan == openerCloses || plan == oneWay {
		s.ends(stream, count)
	} else {
		s.close(stream)
	}
}

// flood sends messages of one size until C closes the stream, which it has paused.
func (s *streamSession) flood(id uint16, size int) {
	s.opened.Add(1)
	defer s.streamEnded()
	stream := s.open(id)
	p := packet.Get()
	defer packet.Put(p)
	p.Content.Write(pattern[:size])
	p.Metadata.ContentLength = uint32(size)
	n := 0
	var err error
	for ; err == nil && n < floodMax; n++ {
		err = stream.WritePacket(p)
	}
	if !errors.Is(err, frisbee.StreamClosed) {
		s.fail(stream, "a flood that nobody stopped", n, err)
	}
	s.ends(stream, 0)
	if s.floodClosed.Add(1) == 2 {
		go func() {
			time.Sleep(confirm)
			s.initiate(s.base + 1) // the id of a stream that C closed, once more
		}()
	}
}

// begin opens Go's streams. In B C opens none, and Go's ids come from everywhere.
func (s *streamSession) begin() {
	ours := streamWays[s.way-'A'].ours
	switch s.way {
	case 'B':
		for i := 0; i < int(ours); i++ {
			id := uint16(i * 65)
			if i == 1 {
				id = 15
			} else if i == 2 {
				id = 65535
			}
			go s.initiate(id)
		}
	case 'D':
		for i := uint16(0); i < 200; i++ {
			go s.initiate(s.base + 1 + i)
		}
		go func() {
			for i := 0; i < 20; i++ { // closed by Go with nothing under way: it may be used again at once
				s.initiate(s.base + 20000)
			}
		}()
	case 'F':
		go s.flood(s.base+1, 1000)
		go s.flood(s.base+2, 1)
		go s.initiate(s.base + 3)
	default:
		for i := uint16(0); i < uint16(ours); i++ {
			go s.initiate(s.base + 1 + i)
		}
	}
}

// onFinish: C's streams have all ended. Answers how many ended here, and how many messages came on them, when the same is true here.
func (s *streamSession) onFinish(_ context.Context, p *packet.Packet) (*packet.Packet, frisbee.Action) {
	id := p.Metadata.Id
	go func() {
		select {
		case <-s.done:
		case <-s.closed:
		}
		s.verdict(s.wrong.Load() == 0 && s.ended.Load() == s.opened.Load(), "%d streams, %d messages came from C in order, all ended",
			s.ended.Load(), s.received.Load())
		reply := packet.Get()
		defer packet.Put(reply)
		reply.Metadata.Id, reply.Metadata.Operation, reply.Metadata.ContentLength = id, opFinish, 8
		reply.Content.Write(binary.BigEndian.AppendUint32(nil, uint32(s.ended.Load())))
		reply.Content.Write(binary.BigEndian.AppendUint32(nil, uint32(s.received.Load())))
		if err := s.write(reply); err != nil {
			s.verdict(false, "answer to FINISH: %v", err)
		}
	}()
	return nil, frisbee.NONE
}

func (s *streamSession) onStart(_ context.Context, p *packet.Packet) (*packet.Packet, frisbee.Action) {
	s.way = p.Content.Bytes()[0]
	close(s.started)
	s.begin()
	return nil, frisbee.NONE
}

func (s *streamSession) handlers() frisbee.HandlerTable {
	return frisbee.HandlerTable{opEcho: onEcho, opStart: s.onStart, opFinish: s.onFinish}
}

// The end of the connection, which C closes, but for G.
func (s *streamSession) wait() {
	<-s.closed
	if s.way >= 'G' {
		s.verdict(s.wrong.Load() == 0 && s.received.Load() > 0, "the connection ended amid messages, %d had come in order", s.received.Load())
	}
}

// reset closes a connection so that its peer gets RST.
func reset(conn net.Conn) func() {
	return func() {
		_ = conn.(*net.TCPConn).SetLinger(0)
		_ = conn.Close()
	}
}

func serveStreams(file string) error {
	listener, err := listen(file)
	if err != nil {
		return err
	}
	for range streamWays {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		s := newStreamSession(ownHalf)
		s.cut = reset(conn)
		server, err := frisbee.NewServer(s.handlers(), context.Background()) // one for each connection, which so finds its session
		if err != nil {
			return err
		}
		server.SetConcurrency(1)
		_ = server.SetStreamHandler(func(_ context.Context, stream *frisbee.Stream) { s.echo(stream) })
		attached := make(chan struct{})
		server.ConnContext = func(ctx context.Context, conn *frisbee.Async) context.Context {
			s.open, s.write, s.closed = conn.NewStream, conn.WritePacket, conn.CloseChannel()
			close(attached)
			return ctx
		}
		server.ServeConn(conn)
		<-attached
		s.wait()
	}
	return nil
}

func connectStreams(file string) error {
	address, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for way := range streamWays {
		conn, err := net.Dial("tcp", strings.TrimSpace(string(address)))
		if err != nil {
			return err
		}
		s := newStreamSession(0)
		s.way = 'A' + byte(way)
		s.cut = reset(conn)
		client, err := frisbee.NewClient(s.handlers(), context.Background())
		if err != nil {
			return err
		}
		if err := client.FromConn(conn, s.echo); err != nil {
			return err
		}
		s.open, s.write, s.closed = client.Stream, client.WritePacket, client.CloseChannel()
		start := packet.New()
		start.Metadata.Id, start.Metadata.Operation = 15, opStart
		start.Content.Write(append([]byte{s.way}, version...))
		start.Metadata.ContentLength = uint32(start.Content.Len())
		if err := s.write(start); err != nil {
			return err
		}
		close(s.started)
		s.begin()
		s.wait()
	}
	return nil
}
