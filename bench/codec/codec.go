// The messages of codec.c with the Go module polyglot, by code that its own generator wrote. codec.sh runs it.
package main

import (
	"fmt"
	"sort"
	"time"

	"github.com/loopholelabs/polyglot/v2"
)

const (
	rounds = 9
	slice  = 30 * time.Millisecond
)

type message interface {
	Encode(*polyglot.Buffer)
	Decode([]byte) error
}

func median(run func()) float64 {
	var ns []float64
	for i := 0; i < rounds; i++ {
		begin, runs := time.Now(), 0
		for time.Since(begin) < slice {
			for j := 0; j < 16; j++ {
				run()
			}
			runs += 16
		}
		ns = append(ns, float64(time.Since(begin).Nanoseconds())/float64(runs))
	}
	sort.Float64s(ns)
	return ns[rounds/2]
}

func measure(name string, m message, fresh func() message) {
	b := polyglot.NewBufferSize(1 << 20)
	m.Encode(b)
	content := append([]byte(nil), b.Bytes()...)
	encode := median(func() { b.Reset(); m.Encode(b) })
	decode := median(func() {
		if fresh().Decode(content) != nil {
			panic("it does not decode")
		}
	})
	fmt.Printf("%s: %d bytes\n    %-28s %12.0f ns\n    %-28s %12.0f ns\n", name, len(content), "encode  polyglot for Go", encode, "decode  polyglot for Go", decode)
}

func main() {
	var items []*BenchSmall
	for i := int64(0); i < 1000; i++ {
		items = append(items, &BenchSmall{Id: i * 1234567, Count: int32(i%200 - 100), On: i%2 == 1, Value: float64(i) * 0.25, Name: fmt.Sprintf("item number %d", i)})
	}
	numbers, x := &BenchNumbers{}, uint64(1)
	for i := 0; i < 10000; i++ {
		x = x*6364136223846793005 + 1442695040888963407
		numbers.Values = append(numbers.Values, int64(x>>(x&63)))
		numbers.Reals = append(numbers.Reals, float64(x>>11))
	}
	blob := make([]byte, 65536)
	for i := range blob {
		blob[i] = byte(i)
	}
	middle := &BenchMiddle{Text: "a text of some length, as programs send them to each other", Data: blob[:100],
		Tags: []string{"alpha", "beta", "gamma", "a longer tag than the others"}, Items: items[:8], Head: items[0]}
	newMiddle := func() message { return NewBenchMiddle() }
	measure("small: five fields", items[42], func() message { return NewBenchSmall() })
	measure("middle: texts, bytes, nine messages", middle, newMiddle)
	measure("large: 1,000 messages", &BenchMiddle{Items: items}, newMiddle)
	measure("numbers: 10,000 integers and floats", numbers, func() message { return NewBenchNumbers() })
	measure("bytes: 64 KiB", &BenchMiddle{Data: blob}, newMiddle)
}
