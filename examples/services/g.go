// A service in Go for the cookbook.
//
//	go build -o g g.go
//	./g 60
package main

import (
	"os"
	"strconv"
	"time"
)

type order struct {
	id    int
	total float64
}

//go:noinline
func handle(count int, o *order) int {
	return count * o.id
}

func main() {
	seconds := 60
	if len(os.Args) > 1 {
		seconds, _ = strconv.Atoi(os.Args[1])
	}
	o := &order{id: 7}
	end := time.Now().Add(time.Duration(seconds) * time.Second)
	sum := 0
	for i := 0; time.Now().Before(end); i++ {
		sum += handle(i%4, o)
		time.Sleep(time.Millisecond)
	}
	if sum < 0 {
		os.Exit(1)
	}
}
