package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// processorTime is what the edge used until now.
func (c *child) processorTime() time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.process.Process.Pid))
	must(c.t, err)
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// served is an edge with a server behind it that answers with what the path asks for.
func served(b *testing.B, h2 bool) *child {
	certificate, key := authority(b)
	c := start(b, -1, certificate)
	pairOf, err := tls.X509KeyPair(certificate, key)
	must(b, err)
	offered := []string{"http/1.1"}
	if h2 {
		offered = []string{"h2", "http/1.1"}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(b, err)
	big := make([]byte, 1<<20)
	server := &http.Server{
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pairOf}, NextProtos: offered},
		Handler: http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
			if request.URL.Path == "/big" {
				writer.Header().Set("Content-Length", strconv.Itoa(len(big)))
				writer.Write(big)
				return
			}
			io.WriteString(writer, "hello")
		}),
	}
	go server.ServeTLS(listener, "", "")
	b.Cleanup(func() { server.Close() })
	c.carry()
	c.servers["one"] = listener.Addr().String()
	go func() {
		for range c.hear() {
		}
	}()
	c.policy(map[string]any{"action": "allow", "methods": []string{"GET"}, "paths": []string{"/**"}})
	return c
}

func (c *child) client(h2 bool) *http.Client {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(!h2)
	protocols.SetHTTP2(h2)
	return &http.Client{Transport: &http.Transport{
		Protocols: protocols, MaxIdleConnsPerHost: 64,
		TLSClientConfig: &tls.Config{RootCAs: c.trust},
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			return c.take("one", "a.x", 443), nil
		},
	}}
}

func get(b *testing.B, client *http.Client, path string) int64 {
	response, err := client.Get("https://a.x" + path)
	if err != nil {
		b.Error(err)
		return 0
	}
	count, err := io.Copy(io.Discard, response.Body)
	response.Body.Close()
	if err != nil || response.StatusCode != 200 {
		b.Error(err, response.Status)
	}
	return count
}

// measure runs work at once on several lines, and reports it for a second of the edge's own processor time.
func measure(b *testing.B, c *child, unit string, lines int, work func() float64) {
	work()
	used := c.processorTime()
	var left atomic.Int64
	left.Store(int64(b.N))
	var sum atomic.Int64
	var group sync.WaitGroup
	b.ResetTimer()
	for range lines {
		group.Add(1)
		go func() {
			defer group.Done()
			for left.Add(-1) >= 0 {
				sum.Add(int64(work() * 1000))
			}
		}()
	}
	group.Wait()
	b.StopTimer()
	done := float64(sum.Load()) / 1000
	if cpu := (c.processorTime() - used).Seconds(); cpu > 0 {
		b.ReportMetric(done/cpu, unit+"/cpu-s")
	}
	b.ReportMetric(done/b.Elapsed().Seconds(), unit+"/s")
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.process.Process.Pid))
	must(b, err)
	_, after, _ := strings.Cut(string(text), "VmRSS:")
	resident, _ := strconv.Atoi(strings.Fields(after)[0])
	b.ReportMetric(float64(resident)/1024, "MiB-resident")
}

func BenchmarkRequestsKeptAlive(b *testing.B) {
	c := served(b, false)
	client := c.client(false)
	measure(b, c, "requests", 8, func() float64 { get(b, client, "/"); return 1 })
}

func BenchmarkRequestsOfHTTP2(b *testing.B) {
	c := served(b, true)
	client := c.client(true)
	measure(b, c, "requests", 16, func() float64 { get(b, client, "/"); return 1 })
}

func BenchmarkNewTLSConnections(b *testing.B) {
	c := served(b, false)
	config := &tls.Config{RootCAs: c.trust, ServerName: "a.x", NextProtos: []string{"http/1.1"}}
	measure(b, c, "connections", 8, func() float64 {
		conn := tls.Client(c.take("one", "a.x", 443), config)
		defer conn.Close()
		fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: a.x\r\n\r\n")
		head := make([]byte, 12)
		if _, err := io.ReadFull(conn, head); err != nil || string(head) != "HTTP/1.1 200" {
			b.Error(err, string(head))
		}
		return 1
	})
}

func BenchmarkMegabytes(b *testing.B) {
	c := served(b, false)
	client := c.client(false)
	measure(b, c, "MB", 4, func() float64 { return float64(get(b, client, "/big")) / 1e6 })
}

func BenchmarkMegabytesOfHTTP2(b *testing.B) {
	c := served(b, true)
	client := c.client(true)
	measure(b, c, "MB", 4, func() float64 { return float64(get(b, client, "/big")) / 1e6 })
}
