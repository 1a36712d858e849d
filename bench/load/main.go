// Load is a server and its clients, for measurements of what stands between them.
//
//	load serve CERTIFICATE-AND-KEY   prints its ports and serves until its input ends
//	load ask …                       asks a server for a while and prints what came, as JSON
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"time"
)

// Asked is what clients did.
type Asked struct {
	Count    int     `json:"count"`
	Bytes    int64   `json:"bytes"`
	Seconds  float64 `json:"seconds"`
	MedianMS float64 `json:"median_ms"`
	P99MS    float64 `json:"p99_ms"`
}

func main() {
	if len(os.Args) == 3 && os.Args[1] == "serve" {
		check(serve(os.Args[2]))
		return
	}
	flags := flag.NewFlagSet("ask", flag.ExitOnError)
	to := flags.String("to", "", "address and port")
	name := flags.String("name", "", "the server's name")
	roots := flags.String("roots", "", "a file with certificates to trust")
	kind := flags.String("kind", "", "requests, requests2, connections, bodies, hello or flood")
	lines := flags.Int("lines", 1, "how many ask at once")
	last := flags.Duration("for", 3*time.Second, "how long")
	most := flags.Int("most", 1<<30, "how often on each line, at most")
	if len(os.Args) < 2 || os.Args[1] != "ask" {
		check(fmt.Errorf("load serve, or load ask"))
	}
	check(flags.Parse(os.Args[2:]))
	work, err := workOf(*kind, *to, *name, *roots)
	check(err)
	asked, err := ask(work, *lines, *most, *last)
	check(err)
	check(json.NewEncoder(os.Stdout).Encode(asked))
}

// ask does work on several lines for a while. The first piece of each line is not counted.
func ask(work func() piece, lines, most int, last time.Duration) (Asked, error) {
	type line struct {
		times []time.Duration
		bytes int64
		err   error
	}
	done := make(chan line)
	started, begin := make(chan error), make(chan struct{})
	var end time.Time
	for range lines {
		go func() {
			next := work()
			_, err := next()
			started <- err
			<-begin
			var mine line
			for mine.err == nil && len(mine.times) < most && time.Now().Before(end) {
				at := time.Now()
				var count int64
				count, mine.err = next()
				mine.bytes += count
				mine.times = append(mine.times, time.Since(at))
			}
			done <- mine
		}()
	}
	for range lines {
		if err := <-started; err != nil {
			return Asked{}, err
		}
	}
	fmt.Println("begun")
	var order string
	if _, err := fmt.Scanln(&order); err != nil {
		return Asked{}, err
	}
	began := time.Now()
	end = began.Add(last)
	close(begin)
	var all []time.Duration
	asked := Asked{}
	for range lines {
		mine := <-done
		if mine.err != nil {
			return Asked{}, mine.err
		}
		all = append(all, mine.times...)
		asked.Bytes += mine.bytes
	}
	asked.Seconds = time.Since(began).Seconds()
	slices.Sort(all)
	asked.Count = len(all)
	asked.MedianMS = all[len(all)/2].Seconds() * 1000
	asked.P99MS = all[len(all)*99/100].Seconds() * 1000
	return asked, nil
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}
