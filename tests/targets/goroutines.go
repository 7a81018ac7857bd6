// build: go
//
// Goroutines at the end of their small stacks, in chains of functions that do not look whether there is room: what lies below
// one's stack is another's. "goroutines ROUNDS EACH" starts EACH in each round, at many depths, and prints what they computed
// and how often main.leaf was called. A goroutine whose own variables have changed panics.
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
func big(x uint64) uint64 {
	var words [80]uint64
	words[x%80] = x
	return leaf(x) + words[(x*7)%80]
}

// deep compares the stack pointer with the end of its stack, as functions of Go do.
//
//go:noinline
func deep(n int, x uint64) uint64 {
	if n == 0 {
		return big(x)
	}
	return deep(n-1, x+1) + 1
}

func number(argument int) int {
	value, err := strconv.Atoi(os.Args[argument])
	if err != nil {
		panic(err)
	}
	return value
}

func main() {
	runtime.GOMAXPROCS(2)
	rounds, each := number(1), number(2)
	var sum, calls uint64
	for round := 0; round < rounds; round++ {
		var all sync.WaitGroup
		start := make(chan int)
		for g := 0; g < each; g++ {
			all.Add(1)
			go func(g int) {
				defer all.Done()
				a, b, c := uint64(g)*7, uint64(g)*11, uint64(g)*13
				<-start
				result := deep(g%60, uint64(g))
				if a != uint64(g)*7 || b != uint64(g)*11 || c != uint64(g)*13 {
					panic("a goroutine's variables have changed")
				}
				atomic.AddUint64(&sum, result)
				atomic.AddUint64(&calls, 1)
			}(g)
		}
		close(start)
		all.Wait()
	}
	fmt.Println("sum", sum, "calls", calls)
}
