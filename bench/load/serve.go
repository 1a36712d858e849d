package main

import (
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
)

const bodyBytes = 1 << 20

func serve(certificate string) error {
	own, err := tls.LoadX509KeyPair(certificate, certificate)
	if err != nil {
		return err
	}
	ports := map[string]int{}
	listen := func(kind string) (net.Listener, error) {
		listener, err := net.Listen("tcp", "0.0.0.0:0")
		if err == nil {
			ports[kind] = listener.Addr().(*net.TCPAddr).Port
		}
		return listener, err
	}
	for kind, offered := range map[string][]string{"web": {"http/1.1"}, "web2": {"h2", "http/1.1"}} {
		web, err := listen(kind)
		if err != nil {
			return err
		}
		server := &http.Server{
			Handler:   http.HandlerFunc(answer),
			TLSConfig: &tls.Config{Certificates: []tls.Certificate{own}, NextProtos: offered},
		}
		go server.ServeTLS(web, "", "")
	}
	raw, err := listen("raw")
	if err != nil {
		return err
	}
	go serveRaw(raw)
	if err := json.NewEncoder(os.Stdout).Encode(ports); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

var body = make([]byte, bodyBytes)

func answer(writer http.ResponseWriter, request *http.Request) {
	if request.URL.Path == "/body" {
		writer.Header().Set("Content-Length", strconv.Itoa(len(body)))
		writer.Write(body)
		return
	}
	io.WriteString(writer, "hello")
}

// serveRaw sends as many bytes as the first eight of a connection ask for, and again.
func serveRaw(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			var wanted [8]byte
			for {
				if _, err := io.ReadFull(conn, wanted[:]); err != nil {
					return
				}
				for left := binary.BigEndian.Uint64(wanted[:]); left > 0; {
					piece := min(left, uint64(len(body)))
					if _, err := conn.Write(body[:piece]); err != nil {
						return
					}
					left -= piece
				}
			}
		}()
	}
}
