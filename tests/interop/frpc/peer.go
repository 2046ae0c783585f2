// The Go side of the test of typed calls: stock frisbee-go, messages that polyglot's own generator wrote from frpc.proto (gen), and around them
// what frpc-go's generated code does: operations from 10 in the order of the file, an id for each call, errors and ends as messages.
// frpc_peer.c is the other side.
//
//	peer server FILE           writes its address to FILE and serves until it is killed
//	peer client FILE           reads the server's address from FILE, and checks
package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/loopholelabs/frisbee-go"
	"github.com/loopholelabs/frisbee-go/pkg/packet"
	"github.com/loopholelabs/polyglot/v2"
)

const (
	opEcho = uint16(iota + 10)
	opFail
	opCount
	opSum
	opTwice
	opNext
	opUnknown
)

const wait = 10 * time.Second

type message interface {
	Encode(*polyglot.Buffer)
	Decode([]byte) error
}

var errEnd = errors.New("EOF")

func bytesOf(m message) []byte {
	b := polyglot.NewBufferSize(1 << 16) // a smaller one does not always grow in time for an Int64 (polyglot v2.0.3)
	m.Encode(b)
	return b.Bytes()
}

// ---- server

// A method that does not stream: what cannot be decoded is not answered.
func unary[Q, R message](newRequest func() Q, function func(Q) (R, error)) frisbee.Handler {
	return func(_ context.Context, incoming *packet.Packet) (*packet.Packet, frisbee.Action) {
		request := newRequest()
		if request.Decode(incoming.Content.Bytes()) != nil {
			return nil, frisbee.NONE
		}
		response, err := function(request)
		incoming.Content.Reset()
		if err != nil {
			polyglot.Encoder(incoming.Content).Error(err)
		} else {
			response.Encode(incoming.Content)
		}
		incoming.Metadata.ContentLength = uint32(incoming.Content.Len())
		return incoming, frisbee.NONE
	}
}

var handlers = frisbee.HandlerTable{
	opEcho: unary(NewInteropAll, func(q *InteropAll) (*InteropAll, error) { return q, nil }),
	opFail: unary(NewInteropRange, func(q *InteropRange) (*InteropNumber, error) { return nil, errors.New(q.Fail) }),
	opNext: unary(NewInteropNumber, func(q *InteropNumber) (*InteropNumber, error) { return &InteropNumber{Value: q.Value + 1}, nil }),
}

func send(stream *frisbee.Stream, content []byte) error {
	p := packet.Get()
	defer packet.Put(p)
	p.Content.Write(content)
	p.Metadata.ContentLength = uint32(p.Content.Len())
	return stream.WritePacket(p)
}

func sendError(stream *frisbee.Stream, err error) error {
	b := polyglot.NewBuffer()
	polyglot.Encoder(b).Error(err)
	return send(stream, b.Bytes())
}

// The next message of a stream; errEnd is its end, other errors are what the other side sent, or the connection's.
func receive(stream *frisbee.Stream, m message) error {
	p, err := stream.ReadPacket()
	if err != nil {
		return err
	}
	defer packet.Put(p)
	if text, err := polyglot.Decoder(p.Content.Bytes()).Error(); err == nil {
		if text.Error() == errEnd.Error() {
			return errEnd
		}
		return text
	}
	return m.Decode(p.Content.Bytes())
}

func serveStream(stream *frisbee.Stream) {
	p, err := stream.ReadPacket()
	if err != nil {
		return
	}
	operation, err := polyglot.Decoder(p.Content.Bytes()).Uint16()
	packet.Put(p)
	if err == nil {
		err = streamFunction(operation, stream)
	}
	if err != nil && err != errEnd {
		_ = sendError(stream, err)
	}
	_ = sendError(stream, errEnd)
}

func streamFunction(operation uint16, stream *frisbee.Stream) error {
	switch operation {
	case opCount:
		var q InteropRange
		if err := receive(stream, &q); err != nil {
			return err
		}
		for i := q.First; i <= q.Last; i++ {
			if err := send(stream, bytesOf(&InteropNumber{Value: i})); err != nil {
				return err
			}
		}
		if q.Fail != "" {
			return errors.New(q.Fail)
		}
		return nil
	case opSum:
		var sum int64
		for {
			var q InteropNumber
			err := receive(stream, &q)
			if err == errEnd {
				return send(stream, bytesOf(&InteropNumber{Value: sum}))
			}
			if err != nil {
				return err
			}
			sum += q.Value
		}
	case opTwice:
		for {
			var q InteropNumber
			if err := receive(stream, &q); err != nil {
				return err
			}
			if q.Value == -1 {
				return errors.New("negative")
			}
			if err := send(stream, bytesOf(&InteropNumber{Value: 2 * q.Value})); err != nil {
				return err
			}
		}
	}
	return errors.New("no such method")
}

func serve(file string) error {
	server, err := frisbee.NewServer(handlers, context.Background())
	if err != nil {
		return err
	}
	if err := server.SetStreamHandler(func(_ context.Context, stream *frisbee.Stream) { serveStream(stream) }); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if err := os.WriteFile(file+".new", []byte(listener.Addr().String()+"\n"), 0o644); err != nil {
		return err
	}
	if err := os.Rename(file+".new", file); err != nil {
		return err
	}
	time.AfterFunc(120*time.Second, func() { os.Exit(1) }) // nobody killed it
	return server.StartWithListener(listener)
}

// ---- client

type client struct {
	conn    *frisbee.Client
	mutex   sync.Mutex
	next    map[uint16]uint16 // ids, of each operation
	waiting map[uint32]chan []byte
	stream  uint16
}

func (c *client) reply(_ context.Context, incoming *packet.Packet) (*packet.Packet, frisbee.Action) {
	key := uint32(incoming.Metadata.Operation)<<16 | uint32(incoming.Metadata.Id)
	c.mutex.Lock()
	channel := c.waiting[key]
	delete(c.waiting, key)
	c.mutex.Unlock()
	if channel != nil {
		channel <- append([]byte(nil), incoming.Content.Bytes()...)
	}
	return nil, frisbee.NONE
}

func (c *client) call(operation uint16, content []byte) ([]byte, error) {
	channel := make(chan []byte, 1)
	p := packet.Get()
	c.mutex.Lock()
	c.next[operation]++
	p.Metadata.Id = c.next[operation]
	c.waiting[uint32(operation)<<16|uint32(p.Metadata.Id)] = channel
	c.mutex.Unlock()
	p.Metadata.Operation = operation
	p.Content.Write(content)
	p.Metadata.ContentLength = uint32(p.Content.Len())
	err := c.conn.WritePacket(p)
	packet.Put(p)
	if err != nil {
		return nil, err
	}
	select {
	case content := <-channel:
		if text, err := polyglot.Decoder(content).Error(); err == nil {
			return nil, text
		}
		return content, nil
	case <-time.After(wait):
		return nil, errors.New("no reply")
	}
}

func (c *client) open(operation uint16, request message) (*frisbee.Stream, error) {
	c.stream++
	stream := c.conn.Stream(c.stream)
	b := polyglot.NewBuffer()
	polyglot.Encoder(b).Uint16(operation)
	err := send(stream, b.Bytes())
	if err == nil && request != nil {
		err = send(stream, bytesOf(request))
	}
	return stream, err
}

var failures int

func check(err error, what string) {
	if err == nil {
		fmt.Printf("ok   Go client: %s\n", what)
		return
	}
	failures++
	fmt.Printf("FAIL Go client: %s: %v\n", what, err)
}

func (c *client) echo(m *InteropAll, exact bool) error {
	sent := bytesOf(m)
	content, err := c.call(opEcho, sent)
	if err != nil {
		return err
	}
	if exact && string(content) != string(sent) {
		return fmt.Errorf("%d bytes came back as %d other ones", len(sent), len(content))
	}
	var back InteropAll
	if err := back.Decode(content); err != nil {
		return err
	}
	var again InteropAll // both decoded, so that nil and empty are the same
	if err := again.Decode(sent); err != nil {
		return err
	}
	if !reflect.DeepEqual(back, again) {
		return errors.New("it is not what it was")
	}
	return nil
}

func largest() *InteropAll {
	return &InteropAll{B: true, I32: math.MaxInt32, I64: math.MaxInt64, U32: math.MaxUint32, U64: math.MaxUint64, S32: math.MaxInt32,
		S64: math.MaxInt64, F32: math.MaxUint32, F64: math.MaxUint64, Sf32: math.MaxInt32, Sf64: math.MaxInt64, Real: math.MaxFloat32,
		Exact: math.MaxFloat64, Level: InteropHIGH, Gapped: InteropHUNDRED}
}

func smallest() *InteropAll {
	return &InteropAll{I32: math.MinInt32, I64: math.MinInt64, S32: math.MinInt32, S64: math.MinInt64, Sf32: math.MinInt32, Sf64: math.MinInt64,
		Real: math.SmallestNonzeroFloat32, Exact: -math.SmallestNonzeroFloat64, Gapped: InteropTEN, Level: InteropLOW}
}

func nested() *InteropAll {
	m := largest()
	m.Point = &InteropPoint{X: -1, Y: 1, Label: "origin, nearly"}
	m.Points = InteropAllPointsMap{"only": &InteropPoint{X: 7}}
	m.Path = []*InteropPoint{{X: 1}, {Y: -2, Label: "b"}, {}}
	m.Strings = []string{"", "a", "ünïcode \x00"}
	m.Bools = []bool{true, false}
	m.I32S = []int32{math.MinInt32, 0, math.MaxInt32}
	m.I64S = []int64{math.MinInt64, -1, math.MaxInt64}
	m.U32S = []uint32{0, 127, 128, math.MaxUint32}
	m.U64S = []uint64{0, math.MaxUint64}
	m.Reals = []float32{0, -1.5}
	m.Exacts = []float64{math.Pi}
	m.Numbers = InteropAllNumbersMap{-5: math.MinInt64}
	m.Names = InteropAllNamesMap{math.MaxUint64: "most"}
	m.Halves = InteropAllHalvesMap{true: 0.5}
	m.Text, m.Data = "text", []byte{0, 1, 255}
	return m
}

func (c *client) concurrent() error {
	results := make(chan error, 1000)
	for i := 0; i < 1000; i++ {
		go func(i int) {
			content, err := c.call(opNext, bytesOf(&InteropNumber{Value: int64(i)}))
			var n InteropNumber
			if err == nil {
				err = n.Decode(content)
			}
			if err == nil && n.Value != int64(i)+1 {
				err = fmt.Errorf("%d has the answer %d", i, n.Value)
			}
			results <- err
		}(i)
	}
	for i := 0; i < 1000; i++ {
		if err := <-results; err != nil {
			return err
		}
	}
	return nil
}

// What a stream brings until it ends: how many, their sum, and the error that ended it.
func drain(stream *frisbee.Stream) (count int, sum int64, err error) {
	for {
		var n InteropNumber
		if err := receive(stream, &n); err != nil {
			return count, sum, err
		}
		count++
		sum += n.Value
	}
}

func (c *client) count(last int64, fail string) error {
	stream, err := c.open(opCount, &InteropRange{First: 1, Last: last, Fail: fail})
	if err != nil {
		return err
	}
	count, sum, err := drain(stream)
	if int64(count) != last || sum != last*(last+1)/2 {
		return fmt.Errorf("%d numbers, in all %d, then %v", count, sum, err)
	}
	if fail == "" && err != errEnd || fail != "" && err.Error() != fail {
		return err
	}
	return nil
}

func (c *client) sum() error {
	stream, err := c.open(opSum, nil)
	for i := int64(1); i <= 1000 && err == nil; i++ {
		err = send(stream, bytesOf(&InteropNumber{Value: i}))
	}
	if err == nil {
		err = sendError(stream, errEnd)
	}
	var n InteropNumber
	if err == nil {
		err = receive(stream, &n)
	}
	if err == nil && n.Value != 500500 {
		err = fmt.Errorf("the sum is %d", n.Value)
	}
	return err
}

func (c *client) twice(negative bool) error {
	stream, err := c.open(opTwice, nil)
	for i := int64(1); i <= 100 && err == nil; i++ {
		var n InteropNumber
		if err = send(stream, bytesOf(&InteropNumber{Value: i})); err == nil {
			err = receive(stream, &n)
		}
		if err == nil && n.Value != 2*i {
			err = fmt.Errorf("twice %d is %d", i, n.Value)
		}
	}
	if err != nil {
		return err
	}
	if negative {
		err = send(stream, bytesOf(&InteropNumber{Value: -1}))
	} else {
		err = sendError(stream, errEnd)
	}
	if err == nil {
		_, _, err = drain(stream)
	}
	if negative && err.Error() == "negative" || !negative && err == errEnd {
		return nil
	}
	return fmt.Errorf("it ended with %v", err)
}

func expect(err error, text string) error {
	if err != nil && strings.Contains(err.Error(), text) {
		return nil
	}
	return fmt.Errorf("%v in place of %s", err, text)
}

func connect(file string) error {
	address, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	c := &client{next: map[uint16]uint16{}, waiting: map[uint32]chan []byte{}}
	c.conn, err = frisbee.NewClient(frisbee.HandlerTable{opEcho: c.reply, opFail: c.reply, opNext: c.reply, opUnknown: c.reply}, context.Background())
	if err != nil {
		return err
	}
	// with a handler for new streams, though none comes: without, it drops what comes on its own (frisbee-go v0.10.2)
	if err := c.conn.Connect(strings.TrimSpace(string(address)), func(*frisbee.Stream) {}); err != nil {
		return err
	}
	time.AfterFunc(60*time.Second, func() { os.Exit(1) })
	large := nested()
	large.Text, large.Data = strings.Repeat("x", 1<<20), make([]byte, 1<<20)
	floats := &InteropAll{Real: float32(math.Inf(1)), Exact: math.Inf(-1), Reals: []float32{float32(math.Copysign(0, -1))}}
	nan := &InteropAll{Real: float32(math.NaN()), Exact: math.NaN()}
	check(c.echo(&InteropAll{}, true), "a message of zeros, byte for byte")
	check(c.echo(largest(), true), "all scalars at their upper limits")
	check(c.echo(smallest(), true), "all scalars at their lower limits")
	check(c.echo(nested(), true), "nested and repeated messages and maps, byte for byte")
	check(c.echo(large, true), "a text and bytes of 1 MiB")
	check(c.echo(floats, true), "infinities and minus zero")
	content, err := c.call(opEcho, bytesOf(nan))
	if err == nil && string(content) != string(bytesOf(nan)) {
		err = errors.New("other bits")
	}
	check(err, "NaN")
	many := nested()
	many.Numbers = InteropAllNumbersMap{}
	for i := int32(0); i < 500; i++ {
		many.Numbers[i] = int64(i) * 1e15
	}
	check(c.echo(many, false), "a map of 500 entries")
	content, err = c.call(opEcho, []byte{0})
	if err == nil {
		err = new(InteropAll).Decode(content)
	}
	check(err, "Nil for a request")
	_, err = c.call(opFail, bytesOf(&InteropRange{Fail: "as asked for"}))
	check(expect(err, "as asked for"), "an error")
	check(c.concurrent(), "1,000 concurrent calls, of the second service")
	check(c.count(1000, ""), "server streaming")
	check(c.count(10, "no more"), "server streaming that ends with an error")
	check(c.count(0, ""), "server streaming of nothing")
	check(c.sum(), "client streaming")
	check(c.twice(false), "bidirectional streaming")
	check(c.twice(true), "bidirectional streaming that ends with an error")
	_, err = c.call(opEcho, []byte{8, 0, 5})
	check(expect(err, "expected"), "a request that cannot be decoded is answered")
	_, err = c.call(opUnknown, bytesOf(&InteropNumber{}))
	check(expect(err, "unknown operation 16"), "an unknown operation is answered")
	check(c.echo(largest(), true), "and all goes on")
	if failures > 0 {
		return errors.New("some checks failed")
	}
	return c.conn.Close()
}

func main() {
	run := map[string]func(string) error{"server": serve, "client": connect}[os.Args[1]]
	if err := run(os.Args[2]); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}
