package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
)

const floodBytes = 64 << 20

type piece = func() (int64, error)

// workOf returns what makes the work of a line.
func workOf(kind, to, name, roots string) (func() piece, error) {
	switch kind {
	case "hello":
		return func() piece { return func() (int64, error) { return hello(to) } }, nil
	case "flood":
		return func() piece { return flood(to) }, nil
	}
	text, err := os.ReadFile(roots)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate", roots)
	}
	_, port, err := net.SplitHostPort(to)
	if err != nil {
		return nil, err
	}
	url := "https://" + net.JoinHostPort(name, port)
	switch kind {
	case "requests", "connections":
	case "bodies":
		url += "/body"
	case "requests2":
		shared := client(to, pool, true) // the streams of one connection
		return func() piece { return func() (int64, error) { return get(shared, url) } }, nil
	default:
		return nil, fmt.Errorf("there is no kind %q", kind)
	}
	return func() piece {
		own := client(to, pool, false)
		return func() (int64, error) {
			if kind == "connections" {
				defer own.CloseIdleConnections()
			}
			return get(own, url)
		}
	}, nil
}

func client(to string, pool *x509.CertPool, h2 bool) *http.Client {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(!h2)
	protocols.SetHTTP2(h2)
	return &http.Client{Transport: &http.Transport{
		Protocols: protocols, DisableCompression: true, TLSClientConfig: &tls.Config{RootCAs: pool},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			var dialer net.Dialer
			return dialer.DialContext(ctx, network, to)
		},
	}}
}

func get(by *http.Client, url string) (int64, error) {
	response, err := by.Get(url)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	count, err := io.Copy(io.Discard, response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("the answer is %s", response.Status)
	}
	return count, err
}

// hello makes a connection and waits for the first byte.
func hello(to string) (int64, error) {
	conn, err := net.Dial("tcp", to)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	return read(conn, 1)
}

// flood reads as fast as it can on one connection.
func flood(to string) piece {
	conn, err := net.Dial("tcp", to)
	return func() (int64, error) {
		if err != nil {
			return 0, err
		}
		return read(conn, floodBytes)
	}
}

func read(conn net.Conn, count uint64) (int64, error) {
	var wanted [8]byte
	binary.BigEndian.PutUint64(wanted[:], count)
	if _, err := conn.Write(wanted[:]); err != nil {
		return 0, err
	}
	buffer := make([]byte, 1<<20)
	var total int64
	for total < int64(count) {
		got, err := conn.Read(buffer)
		total += int64(got)
		if err != nil {
			return total, err
		}
	}
	return total, nil
}
