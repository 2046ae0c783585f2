// Publish and subscribe in ordinary frisbee-go handlers, written from sections 9 and 11 of the manual in frisbee.h alone; and a server of
// ordinary handlers that is no broker. frisbee_pubsub.c is the other side of both.
package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/loopholelabs/frisbee-go"
	"github.com/loopholelabs/frisbee-go/pkg/metadata"
	"github.com/loopholelabs/frisbee-go/pkg/packet"
)

// ---- the operations

const (
	opSubscribe = uint16(iota + 0xFF10)
	opSubscribed
	opUnsubscribe
	opUnsubscribed
	opPublish
	opMessage
	opDropped
	opPublished
)

const ( // policies of subscriptions
	dropNew = byte(iota)
	dropOld
	latest
	closeSlow
	block
)

const ( // statuses
	taken = byte(iota)
	refused
	malformed
	limits
	_ // not a broker
	inUse
)

const ( // flags: of SUBSCRIBE, of PUBLISH, of MESSAGE
	wantRetained = byte(1)
	retain       = byte(1)
	live         = byte(1) // published as retained
	kept         = byte(2) // a retained value from before
)

const opDo = uint16(20) // asks frisbee_pubsub.c to do something

// What came, in the order in which it came.
type event struct {
	operation, id uint16
	status, flags byte
	topic         string
	data          []byte
	subscriptions uint32
	dropped       uint64 // DROPPED, and lost of PUBLISHED
	closed        bool
}

func (e event) String() string {
	if e.closed {
		return "closed"
	}
	return fmt.Sprintf("operation %#x, id %d, status %d, flags %d, topic %q, %d bytes, %d subscriptions, %d dropped", e.operation, e.id, e.status,
		e.flags, e.topic, len(e.data), e.subscriptions, e.dropped)
}

func decode(p *packet.Packet) (e event) {
	e.operation, e.id = p.Metadata.Operation, p.Metadata.Id
	data := bytes.Clone(p.Content.Bytes())
	switch e.operation {
	case opSubscribed:
		e.status = data[0]
	case opUnsubscribed:
	case opMessage:
		end := 2 + int(data[1])
		e.flags, e.topic, e.data = data[0], string(data[2:end]), data[end:]
	case opDropped:
		e.dropped = binary.BigEndian.Uint64(data)
	case opPublished:
		e.status, e.subscriptions, e.dropped = data[0], binary.BigEndian.Uint32(data[1:]), binary.BigEndian.Uint64(data[5:])
	default:
		e.data = data
	}
	return e
}

// A connection to the broker whose reading can be held up.
type bus struct {
	client *frisbee.Client
	gatedConn
	mutex  sync.Mutex
	come   *sync.Cond
	events []event
}

type gatedConn struct {
	net.Conn
	gate sync.RWMutex
}

func (c *gatedConn) Read(into []byte) (int, error) {
	c.gate.RLock()
	c.gate.RUnlock()
	return c.Conn.Read(into)
}

func (b *bus) add(e event) {
	b.mutex.Lock()
	b.events = append(b.events, e)
	b.mutex.Unlock()
	b.come.Signal()
}

func (b *bus) handle(_ context.Context, p *packet.Packet) (*packet.Packet, frisbee.Action) {
	b.add(decode(p))
	return nil, frisbee.NONE
}

// next is the next thing that came. main's time limit ends a wait for what never comes.
func (b *bus) next() event {
	e, _ := b.nextWithin(limit)
	return e
}

func (b *bus) nextWithin(wait time.Duration) (e event, came bool) {
	over := false
	timer := time.AfterFunc(wait, func() {
		b.mutex.Lock()
		over = true
		b.mutex.Unlock()
		b.come.Signal()
	})
	defer timer.Stop()
	b.mutex.Lock()
	defer b.mutex.Unlock()
	for len(b.events) == 0 && !over {
		b.come.Wait()
	}
	if len(b.events) == 0 {
		return e, false
	}
	e = b.events[0]
	if !e.closed {
		b.events = b.events[1:]
	}
	return e, true
}

func dial(address string) (*bus, error) {
	b := &bus{}
	b.come = sync.NewCond(&b.mutex)
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	_ = conn.(*net.TCPConn).SetReadBuffer(65536) // the sooner the broker feels that reading is held up
	b.gatedConn.Conn = conn
	b.client, err = frisbee.NewClient(frisbee.HandlerTable{opSubscribed: b.handle, opUnsubscribed: b.handle, opMessage: b.handle,
		opDropped: b.handle, opPublished: b.handle, opDo: b.handle}, context.Background())
	if err != nil {
		return nil, err
	}
	if err := b.client.FromConn(&b.gatedConn); err != nil {
		return nil, err
	}
	go func() {
		<-b.client.CloseChannel()
		b.add(event{closed: true})
	}()
	return b, nil
}

func (b *bus) send(operation, id uint16, payload []byte) error {
	p := packet.Get()
	defer packet.Put(p)
	p.Metadata.Id, p.Metadata.Operation, p.Metadata.ContentLength = id, operation, uint32(len(payload))
	p.Content.Write(payload)
	return b.client.WritePacket(p)
}

func text(s string) []byte { return append([]byte{byte(len(s))}, s...) }

func (b *bus) subscribe(id uint16, topic, group string, flags, policy byte, limit uint32) error {
	payload := binary.BigEndian.AppendUint32([]byte{flags, policy}, limit)
	return b.send(opSubscribe, id, append(append(payload, text(topic)...), text(group)...))
}

func (b *bus) publish(id uint16, topic string, flags byte, data []byte) error {
	return b.send(opPublish, id, append(append([]byte{flags}, text(topic)...), data...))
}

// ---- the script

// The messages of both sides begin with their number; the rest follows from it. size 0: small, of all sizes.
func numbered(number, size int) []byte {
	if size == 0 {
		size = 4 + int(uint32(number)*2654435761>>24)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(number)), content(number, size-4)...)
}

func numberOf(e event) int {
	if len(e.data) < 4 {
		return -1
	}
	return int(binary.BigEndian.Uint32(e.data))
}

type script struct {
	address string
	prefix  string // of all topics: the two Go versions do not hear each other
	where   string // in the script
	bad     bool
	buses   []*bus
}

func (s *script) begin(where string) { s.where, s.bad = where, false }

func (s *script) end() {
	if !s.bad { // else fail has told
		verdict(true, "pubsub", "%s", s.where)
	}
}

func (s *script) fail(format string, arguments ...any) {
	if !s.bad {
		verdict(false, "pubsub", "%s: %s", s.where, fmt.Sprintf(format, arguments...))
	}
	s.bad = true
}

func (s *script) must(err error) {
	if err != nil {
		s.fail("%v", err)
	}
}

func (s *script) topic(rest string) string { return s.prefix + "." + rest }

// expect is what must come next. Where data is nil it is not compared.
func (s *script) expect(b *bus, expected event) event {
	got := b.next()
	compared := got
	if expected.data == nil {
		compared.data = nil
	}
	if compared.String() != expected.String() || !bytes.Equal(compared.data, expected.data) {
		s.fail("%v, but came: %v", expected, got)
	}
	return got
}

func (s *script) subscribe(b *bus, id uint16, rest, group string, flags, policy byte, limit uint32) {
	s.must(b.subscribe(id, s.topic(rest), group, flags, policy, limit))
	s.expect(b, event{operation: opSubscribed, id: id})
}

func (s *script) unsubscribe(b *bus, id uint16) {
	s.must(b.send(opUnsubscribe, id, nil))
	s.expect(b, event{operation: opUnsubscribed, id: id})
}

// ask sends a command to frisbee_pubsub.c; its answer is a number.
func (s *script) ask(b *bus, command byte, payload []byte) {
	s.must(b.send(opDo, 1, append([]byte{command}, payload...)))
}

func (s *script) answer(b *bus) int { return s.answerIn(b.next()) }

func (s *script) answerIn(e event) int {
	if e.operation != opDo || len(e.data) != 4 {
		s.fail("an answer to DO, but came: %v", e)
		return -1
	}
	return int(binary.BigEndian.Uint32(e.data))
}

// askPublish: C publishes count messages, numbered from first, on a topic, or in turn on so many topics below it.
func (s *script) askPublish(b *bus, rest string, flags, spread byte, first, count, size int) {
	payload := binary.BigEndian.AppendUint16([]byte{flags, spread}, uint16(size))
	payload = binary.BigEndian.AppendUint32(payload, uint32(first))
	payload = binary.BigEndian.AppendUint32(payload, uint32(count))
	s.ask(b, 'p', append(payload, s.topic(rest)...))
}

// C's program publishes, Go receives.
func (s *script) plain(a *bus) {
	s.begin("1000 messages received in order, byte for byte")
	s.must(a.subscribe(15, s.topic("plain"), "", 0, dropNew, 0)) // the first packet: with id 15, a v0 packet begins like v1
	s.expect(a, event{operation: opSubscribed, id: 15})
	s.askPublish(a, "plain", 0, 0, 0, 1000, 0)
	for i := 0; i < 1000; i++ {
		s.expect(a, event{operation: opMessage, id: 15, topic: s.topic("plain"), data: numbered(i, 0)})
	}
	if n := s.answer(a); n != 1000 {
		s.fail("%d were published", n)
	}
	s.end()
}

// Each subscription that matches gets the message, under its own id; after UNSUBSCRIBED none does.
func (s *script) wildcards(a *bus) {
	s.begin("wildcards * and >, each matching subscription once, none after UNSUBSCRIBED")
	s.subscribe(a, 20, "*.x", "", 0, dropNew, 0)
	s.subscribe(a, 21, "deep.>", "", 0, dropNew, 0)
	s.subscribe(a, 22, ">", "", 0, dropNew, 0)
	publish := func(rest string, ids ...uint16) {
		came := map[uint16]int{}
		s.askPublish(a, rest, 0, 0, 7, 1, 0)
		for range ids {
			e := a.next()
			came[e.id]++
			if e.operation != opMessage || e.topic != s.topic(rest) || !bytes.Equal(e.data, numbered(7, 0)) {
				s.fail("%s: came %v", rest, e)
			}
		}
		for _, id := range ids {
			if came[id] != 1 {
				s.fail("%s: subscription %d got %d messages", rest, id, came[id])
			}
		}
		if s.answer(a) != 1 {
			s.fail("%s: not published", rest)
		}
	}
	publish("deep.x", 20, 21, 22)
	publish("deep.a.b", 21, 22)
	publish("other.x", 20, 22)
	publish("deep", 22)
	publish("x", 22)
	s.unsubscribe(a, 22)
	publish("x")
	publish("deep.x", 20, 21)
	s.unsubscribe(a, 20)
	s.unsubscribe(a, 21)
	publish("deep.x")
	s.subscribe(a, 20, "deep.y", "", 0, dropNew, 0) // the id again, with another topic
	publish("deep.x")
	publish("deep.y", 20)
	s.unsubscribe(a, 20)
	s.end()
}

func (s *script) refusals(a *bus) {
	s.begin("malformed, refused and too many subscriptions and publishes are answered so")
	for _, wanted := range []struct {
		topic, group string
		policy       byte
		status       byte
	}{
		{"", "", 0, malformed},
		{s.topic("a..b"), "", 0, malformed},
		{s.topic("a."), "", 0, malformed},
		{s.topic(">.b"), "", 0, malformed},
		{s.topic("a*"), "", 0, malformed},
		{s.topic("a b"), "", 0, malformed},
		{s.topic(strings.Repeat("t.", 15) + "t"), "", 0, malformed}, // 17 tokens
		{s.topic("a"), "a group", 0, malformed},
		{s.topic("a"), strings.Repeat("g", 65), 0, malformed},
		{s.topic("a"), "", 5, malformed}, // no such policy
		{s.topic("secret"), "", 0, refused},
		{s.topic(strings.Repeat("t.", 14) + "t"), strings.Repeat("g", 64), 0, taken}, // 16 tokens
	} {
		s.must(a.subscribe(30, wanted.topic, wanted.group, 0, wanted.policy, 0))
		s.expect(a, event{operation: opSubscribed, id: 30, status: wanted.status})
	}
	s.must(a.subscribe(30, s.topic("b"), "", 0, dropNew, 0))
	s.expect(a, event{operation: opSubscribed, id: 30, status: inUse}) // the older one goes on
	s.askPublish(a, strings.Repeat("t.", 14)+"t", 0, 0, 5, 1, 0)
	if e := a.next(); e.operation != opMessage || e.id != 30 || numberOf(e) != 5 {
		s.fail("came %v", e)
	}
	s.answer(a)
	s.unsubscribe(a, 30)
	s.unsubscribe(a, 30)              // is always answered
	for i := uint16(0); i < 15; i++ { // of 16, one is taken
		s.subscribe(a, 100+i, "many", "", 0, dropNew, 0)
	}
	s.must(a.subscribe(115, s.topic("many"), "", 0, dropNew, 0))
	s.expect(a, event{operation: opSubscribed, id: 115, status: limits})
	for i := uint16(0); i < 15; i++ {
		s.unsubscribe(a, 100+i)
	}
	for topic, status := range map[string]byte{s.topic("*"): malformed, s.topic(">"): malformed, "": malformed, s.topic("forbidden"): refused} {
		s.must(a.publish(9, topic, 0, []byte("data")))
		s.expect(a, event{operation: opPublished, id: 9, status: status})
	}
	s.end()
}

// In a group one member gets each message.
func (s *script) groups(a, b *bus) {
	s.begin("of a group's two members one gets each of 100 messages, both their share, an outsider all")
	s.subscribe(a, 30, "work", "crew", 0, dropNew, 0)
	s.subscribe(b, 30, "work", "crew", 0, dropNew, 0)
	s.subscribe(b, 31, "work", "", 0, dropNew, 0)
	s.askPublish(a, "work", 0, 0, 0, 100, 0)
	here, there, outside := 0, 0, 0
	different := map[int]bool{} // that came to the group
	last := -1
	e := a.next()
	for ; e.operation == opMessage; e = a.next() {
		if numberOf(e) <= last {
			s.fail("%d behind %d", numberOf(e), last)
		}
		last = numberOf(e)
		different[last] = true
		here++
	}
	s.answerIn(e)
	last = -1
	for here+there+outside < 200 && !s.bad {
		e := b.next()
		switch {
		case e.operation == opMessage && e.id == 30 && numberOf(e) > last:
			last = numberOf(e)
			different[last] = true
			there++
		case e.operation == opMessage && e.id == 31 && numberOf(e) == outside:
			outside++
		default:
			s.fail("came %v", e)
		}
	}
	if here == 0 || there == 0 || here+there != 100 || len(different) != 100 || outside != 100 {
		s.fail("%d here, %d there, %d different; the outsider %d", here, there, len(different), outside)
	}
	s.unsubscribe(a, 30)
	s.unsubscribe(b, 30)
	s.unsubscribe(b, 31)
	s.end()
}

// SUBSCRIBED and the values that were kept, in any order of topics.
func (s *script) subscribeRetained(b *bus, id uint16, rest string, expected map[string][]byte) {
	s.subscribe(b, id, rest, "", wantRetained, dropNew, 0)
	for range expected {
		e := b.next()
		if data, ok := expected[e.topic]; !ok || e.operation != opMessage || e.id != id || e.flags&kept == 0 || !bytes.Equal(e.data, data) {
			s.fail("retained: came %v", e)
		}
	}
}

func (s *script) retained(a, b *bus) {
	s.begin("retained values: the last of each topic, to who asks for them, from C and from Go; an empty one clears")
	s.askPublish(a, "kept.c", retain, 0, 1, 3, 0)
	s.answer(a)
	s.must(a.publish(1, s.topic("kept.go"), retain, []byte("first")))
	s.expect(a, event{operation: opPublished, id: 1})
	s.subscribeRetained(a, 40, "kept.*", map[string][]byte{s.topic("kept.c"): numbered(3, 0), s.topic("kept.go"): []byte("first")})
	s.subscribe(a, 41, "kept.go", "", 0, dropNew, 0) // does not ask
	s.must(b.publish(2, s.topic("kept.go"), retain, []byte("second")))
	s.expect(b, event{operation: opPublished, id: 2, subscriptions: 2})
	for i := 0; i < 2; i++ {
		if e := a.next(); e.operation != opMessage || e.flags != live || string(e.data) != "second" {
			s.fail("published as retained: came %v", e)
		}
	}
	s.unsubscribe(a, 41)
	s.subscribeRetained(b, 42, "kept.go", map[string][]byte{s.topic("kept.go"): []byte("second")})
	s.must(b.publish(3, s.topic("kept.go"), retain, nil))
	s.expect(b, event{operation: opMessage, id: 42, flags: live, topic: s.topic("kept.go"), data: []byte{}})
	s.expect(b, event{operation: opPublished, id: 3, subscriptions: 2})
	s.expect(a, event{operation: opMessage, id: 40, flags: live, topic: s.topic("kept.go"), data: []byte{}})
	s.subscribeRetained(b, 43, "kept.>", map[string][]byte{s.topic("kept.c"): numbered(3, 0)})
	s.unsubscribe(a, 40)
	s.unsubscribe(b, 42)
	s.unsubscribe(b, 43)
	s.end()
}

// Go publishes; C's program, another Go connection and the publisher itself receive.
func (s *script) publishes(a, b *bus) {
	s.begin("1000 messages published unconfirmed and 100 confirmed: C and both Go connections get all, in order")
	s.subscribe(a, 50, "up.*", "", 0, dropNew, 0)
	s.subscribe(b, 50, "up.*", "", 0, dropNew, 0)
	for i := 0; i < 1100; i++ {
		id := uint16(0)
		if i >= 1000 {
			id = uint16(i*59 + 1)
		}
		s.must(a.publish(id, s.topic(fmt.Sprintf("up.%d", i%7)), 0, numbered(i, 0)))
	}
	received, confirmed := 0, 0
	for i := 0; i < 1200 && !s.bad; i++ {
		e := a.next()
		switch {
		case e.operation == opMessage && e.id == 50 && bytes.Equal(e.data, numbered(received, 0)):
			received++
		case e.operation == opPublished && e.status == taken && e.id == uint16((1000+confirmed)*59+1) && e.subscriptions == 3 && e.dropped == 0:
			confirmed++
		default:
			s.fail("behind %d messages and %d confirmations came: %v", received, confirmed, e)
		}
	}
	for i := 0; i < 1100 && !s.bad; i++ {
		s.expect(b, event{operation: opMessage, id: 50, topic: s.topic(fmt.Sprintf("up.%d", i%7)), data: numbered(i, 0)})
	}
	s.ask(a, 'r', []byte(s.prefix))
	if n := s.answer(a); n != 1100 {
		s.fail("C got %d in order", n)
	}
	s.unsubscribe(a, 50)
	s.unsubscribe(b, 50)
	s.end()
}

const (
	burst      = 5000 // messages: more bytes than the system's buffers take
	burstSize  = 4000
	burstOn    = 10    // topics
	burstLimit = 60000 // more than one message of each topic
)

// A burst for a subscriber that does not read, published by C in one go; then it reads, and single messages are published until one comes
// through. How many of the burst come is not certain; everything else is.
func (s *script) drops(a *bus, name string, policy byte) {
	s.begin("policy " + name + ": of a burst the right ones come, and DROPPED tells of all others")
	b := s.dial()
	if b == nil {
		return
	}
	s.subscribe(b, 60, "burst.*", "", 0, policy, burstLimit)
	b.gate.Lock()
	s.askPublish(a, "burst", 0, burstOn, 0, burst, burstSize)
	if n := s.answer(a); n != burst {
		s.fail("%d were published", n)
	}
	b.gate.Unlock()
	came, last := map[int]bool{}, [burstOn]int{} // last of each topic
	for i := range last {
		last[i] = -1
	}
	published, dropped, newest := burst, uint64(0), -1
	// At the end one that was published behind the burst has come, and all that did not come are known to be dropped.
	for !s.bad && (newest < burst || len(came)+int(dropped) != published) {
		e, any := b.nextWithin(20 * time.Millisecond)
		number := numberOf(e)
		switch {
		case published == burst+200:
			s.fail("%d came, %d dropped, of %d", len(came), dropped, published)
		case !any:
			s.askPublish(a, "burst", 0, burstOn, published, 1, burstSize)
			s.answer(a)
			published++
		case e.operation == opDropped && e.id == 60 && e.dropped > dropped:
			dropped = e.dropped
		case e.operation != opMessage || e.id != 60 || number < 0 || number >= published || number <= last[number%burstOn] ||
			e.topic != s.topic(fmt.Sprintf("burst.%d", number%burstOn)) || !bytes.Equal(e.data, numbered(number, burstSize)):
			s.fail("behind %d came %v", newest, e)
		case policy != latest && number < newest: // which keeps the order of each topic alone: a message takes the place of the one before
			s.fail("%d behind %d", number, newest)
		case policy != latest && number-len(came) > int(dropped):
			s.fail("%d came before %d, and only %d were told to be dropped", len(came), number, dropped)
		default:
			came[number] = true
			last[number%burstOn] = number
			newest = max(newest, number)
		}
	}
	if dropped == 0 {
		s.fail("nothing was dropped")
	}
	switch policy {
	case dropNew: // the end of the burst does not come
		if came[burst-1] {
			s.fail("the last of the burst came")
		}
	case dropOld, latest: // the last of each topic comes, or one that was published behind the burst
		for i, number := range last {
			if number < burst-burstOn {
				s.fail("of topic %d nothing came behind %d", i, number)
			}
		}
	}
	_ = b.client.Close()
	s.end()
}

// A subscriber that does not read, with a publisher elsewhere: the messages that it loses are counted for both.
func (s *script) lost(a *bus) {
	const count, size = 4000, 8192
	s.begin("PUBLISHED tells the publisher of as many as DROPPED tells the subscriber")
	b := s.dial()
	if b == nil {
		return
	}
	s.subscribe(b, 61, "slow", "", 0, dropOld, 65536)
	b.gate.Lock()
	for i := 0; i < count; i++ {
		s.must(a.publish(0, s.topic("slow"), 0, numbered(i, size)))
	}
	s.must(a.publish(77, s.topic("slow"), 0, numbered(count, size)))
	confirmed := a.next()
	b.gate.Unlock()
	if confirmed.operation != opPublished || confirmed.id != 77 || confirmed.status != taken || confirmed.subscriptions != 1 || confirmed.dropped == 0 {
		s.fail("came %v", confirmed)
	}
	came, dropped, last := 0, uint64(0), -1
	for !s.bad && last < count {
		e := b.next()
		if e.operation == opDropped && e.dropped > dropped {
			dropped = e.dropped
			continue
		}
		if e.operation != opMessage || numberOf(e) <= last {
			s.fail("behind %d came %v", last, e)
		}
		last = numberOf(e)
		came++
	}
	if dropped != confirmed.dropped || came+int(dropped) != count+1 {
		s.fail("%d came, DROPPED says %d, PUBLISHED %d, of %d", came, dropped, confirmed.dropped, count+1)
	}
	_ = b.client.Close()
	s.end()
}

// A subscriber that does not read and must not miss anything: the publisher waits.
func (s *script) blocks(a *bus) {
	const count, size = 10000, 8192 // twice what the buffers of two connections may grow to
	s.begin("policy BLOCK: the publisher waits, nothing is lost")
	b := s.dial()
	if b == nil {
		return
	}
	s.subscribe(b, 62, "must", "", 0, block, 65536)
	b.gate.Lock()
	sent := make(chan error, 1)
	go func() {
		var err error
		for i := 0; i < count && err == nil; i++ {
			err = a.publish(0, s.topic("must"), 0, numbered(i, size))
		}
		if err == nil {
			err = a.publish(78, s.topic("must"), 0, numbered(count, size))
		}
		sent <- err
	}()
	select {
	case err := <-sent:
		s.fail("%d KiB were taken while nobody read (%v)", count*size/1024, err)
		sent <- err
	case <-time.After(time.Second):
	}
	b.gate.Unlock()
	for i := 0; i <= count && !s.bad; i++ {
		s.expect(b, event{operation: opMessage, id: 62, topic: s.topic("must"), data: numbered(i, size)})
	}
	s.must(<-sent)
	if e := a.next(); e.operation != opPublished || e.id != 78 || e.status != taken || e.subscriptions != 1 {
		s.fail("came %v", e)
	}
	_ = b.client.Close()
	s.end()
}

// What ends a subscription, or a connection, from the broker's side.
func (s *script) ends(a *bus) {
	s.begin("the broker ends a subscription, a slow subscriber with policy CLOSE, and who sends too short a payload")
	s.subscribe(a, 70, "ended", "", 0, dropNew, 0)
	s.ask(a, 'e', []byte(s.topic("ended")))
	s.expect(a, event{operation: opSubscribed, id: 70, status: refused})
	if n := s.answer(a); n != 1 {
		s.fail("%d subscriptions were ended", n)
	}
	s.askPublish(a, "ended", 0, 0, 0, 1, 0)
	s.answer(a) // and no message before it
	s.subscribe(a, 70, "ended.not", "", 0, dropNew, 0)
	s.unsubscribe(a, 70)
	slow, short := s.dial(), s.dial()
	if slow == nil || short == nil {
		return
	}
	s.subscribe(slow, 71, "burst.*", "", 0, closeSlow, burstLimit)
	slow.gate.Lock()
	s.askPublish(a, "burst", 0, burstOn, 0, burst, burstSize)
	s.answer(a)
	slow.gate.Unlock()
	e := slow.next()
	for ; e.operation == opMessage; e = slow.next() {
	}
	if !e.closed {
		s.fail("came %v", e)
	}
	s.subscribe(short, 72, "short", "", 0, dropNew, 0)
	s.must(short.send(opSubscribe, 73, []byte{0, dropNew, 0, 0, 0, 0, 5, 's', 'h'}))
	s.expect(short, event{closed: true})
	s.end()
}

func (s *script) dial() *bus {
	b, err := dial(s.address)
	if err != nil {
		s.fail("%v", err)
		return nil
	}
	s.buses = append(s.buses, b)
	return b
}

func subscriber(file string) error {
	address, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	s := &script{address: strings.TrimSpace(string(address)), prefix: "v1"}
	if metadata.Size == 8 {
		s.prefix = "v0"
	}
	a, b := s.dial(), s.dial()
	if a == nil || b == nil {
		return fmt.Errorf("no broker at %s", s.address)
	}
	s.plain(a)
	s.wildcards(a)
	s.refusals(a)
	s.groups(a, b)
	s.retained(a, b)
	s.publishes(a, b)
	s.drops(a, "DROP_NEW", dropNew)
	s.drops(a, "DROP_OLD", dropOld)
	s.drops(a, "LATEST", latest)
	s.lost(a)
	s.blocks(a)
	s.ends(a)
	s.begin("the broker says goodbye")
	s.ask(a, 'q', []byte(s.prefix))
	s.answer(a)
	for _, b := range s.buses {
		_ = b.client.Close()
	}
	s.end()
	return nil
}

// noBroker serves one connection with ordinary handlers: no broker, and no streams (the stock server closes them).
func noBroker(file string) error {
	listener, err := listen(file)
	if err != nil {
		return err
	}
	conn, err := listener.Accept()
	if err != nil {
		return err
	}
	server, err := frisbee.NewServer(frisbee.HandlerTable{opEcho: onEcho}, context.Background())
	if err != nil {
		return err
	}
	server.SetConcurrency(1)
	ended := make(chan error)
	_ = server.SetOnClosed(func(_ *frisbee.Async, err error) { ended <- err })
	server.ServeConn(conn)
	<-ended
	return nil
}
