// Spawn prints the median time, in milliseconds, of starting true and waiting for it, N times.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"time"
)

func main() {
	rounds, err := strconv.Atoi(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	times := make([]float64, rounds)
	for i := range times {
		began := time.Now()
		if err := exec.Command("/bin/true").Run(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		times[i] = time.Since(began).Seconds() * 1000
	}
	slices.Sort(times)
	fmt.Println(times[rounds/2])
}
