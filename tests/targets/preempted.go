// build: go
//
// Goroutines from which the processor is taken in the middle of a loop, again and again, and given back in any order and by any thread.
// "preempted GOROUTINES EACH" lets each call main.leaf EACH times in main.work, while garbage is collected without a pause.
package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
)

//go:nosplit
//go:noinline
func leaf(x uint64) uint64 { return x*3 + 1 }

//go:nosplit
//go:noinline
func work(n int, x uint64) uint64 {
	for i := 0; i < n; i++ {
		x = leaf(x)
	}
	return x
}

func number(argument int) int {
	value, err := strconv.Atoi(os.Args[argument])
	if err != nil {
		panic(err)
	}
	return value
}

func main() {
	runtime.GOMAXPROCS(4)
	goroutines, each := number(1), number(2)
	var all sync.WaitGroup
	var sum uint64
	go func() {
		for {
			runtime.GC()
		}
	}()
	for g := 0; g < goroutines; g++ {
		all.Add(1)
		go func(g int) {
			defer all.Done()
			atomic.AddUint64(&sum, work(each, uint64(g)))
		}(g)
	}
	all.Wait()
	fmt.Println("sum", sum)
}
