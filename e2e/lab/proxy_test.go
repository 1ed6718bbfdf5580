package lab

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

// echoServer answers each line with "echo LINE" and counts the lines it got.
func echoServer(t *testing.T) (string, <-chan string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	lines := make(chan string, 100)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				for scanner := bufio.NewScanner(conn); scanner.Scan(); {
					lines <- scanner.Text()
					fmt.Fprintf(conn, "echo %s\n", scanner.Text())
				}
			}()
		}
	}()
	return listener.Addr().String(), lines
}

type echoClient struct {
	net.Conn
	r *bufio.Reader
}

func dialEcho(t *testing.T, addr string) echoClient {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return echoClient{conn, bufio.NewReader(conn)}
}

func (c echoClient) ask(t *testing.T, line string, wait time.Duration) (string, error) {
	t.Helper()
	if _, err := fmt.Fprintln(c, line); err != nil {
		return "", err
	}
	if err := c.SetReadDeadline(time.Now().Add(wait)); err != nil {
		t.Fatal(err)
	}
	return c.r.ReadString('\n')
}

func (c echoClient) mustAsk(t *testing.T, line string) {
	t.Helper()
	got, err := c.ask(t, line, 5*time.Second)
	if want := "echo " + line + "\n"; err != nil || got != want {
		t.Fatalf("got %q, %v; want %q", got, err, want)
	}
}

func newProxy(t *testing.T, upstream string) *Proxy {
	t.Helper()
	p, err := NewProxy(upstream)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func heal(t *testing.T, p *Proxy) {
	t.Helper()
	if err := p.Heal(); err != nil {
		t.Fatal(err)
	}
}

func TestProxyCutRefusesAndHeals(t *testing.T) {
	upstream, _ := echoServer(t)
	p := newProxy(t, upstream)
	c := dialEcho(t, p.Addr())
	c.mustAsk(t, "one")

	p.Cut()
	if _, err := c.ask(t, "two", 5*time.Second); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("an open connection survived the cut: %v", err)
	}
	if _, err := net.Dial("tcp", p.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("dial while cut: %v, want connection refused", err)
	}
	heal(t, p)
	dialEcho(t, p.Addr()).mustAsk(t, "three")
}

func TestProxyBlackholeIsSilent(t *testing.T) {
	upstream, lines := echoServer(t)
	p := newProxy(t, upstream)
	c := dialEcho(t, p.Addr())
	c.mustAsk(t, "one")
	<-lines

	p.Blackhole()
	late := dialEcho(t, p.Addr())
	for _, client := range []echoClient{c, late} {
		if _, err := client.ask(t, "lost", 200*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("in a black hole: %v, want silence", err)
		}
	}
	heal(t, p)
	for _, client := range []echoClient{c, late} {
		if err := client.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("a connection with a hole lived on after Heal: %v", err)
		}
	}
	if len(lines) != 0 {
		t.Fatalf("the server got %q out of a black hole", <-lines)
	}
	dialEcho(t, p.Addr()).mustAsk(t, "two")
}

func TestProxyDropUpstreamLosesAnswersOnly(t *testing.T) {
	upstream, lines := echoServer(t)
	p := newProxy(t, upstream)
	c := dialEcho(t, p.Addr())
	c.mustAsk(t, "one")
	<-lines

	p.DropUpstream()
	if _, err := c.ask(t, "write", 200*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("answer: %v, want silence", err)
	}
	if got := <-lines; got != "write" {
		t.Fatalf("the server got %q, want the request", got)
	}
}

func TestProxyDelayIsLatencyNotBandwidth(t *testing.T) {
	upstream, _ := echoServer(t)
	p := newProxy(t, upstream)
	c := dialEcho(t, p.Addr())
	c.mustAsk(t, "fast")

	const delay = 150 * time.Millisecond
	p.Delay(delay)
	start := time.Now()
	c.mustAsk(t, "slow")
	if took := time.Since(start); took < 2*delay {
		t.Fatalf("a round trip took %s, want at least %s", took, 2*delay)
	}
	start = time.Now()
	for i := range 20 {
		if _, err := fmt.Fprintln(c, i); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
	}
	for range 20 {
		if err := c.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.r.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(start); took > 10*delay {
		t.Fatalf("20 pipelined lines took %s: they waited for one another", took)
	}
	heal(t, p)
}

func TestProxyPassesHalfClose(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		data, _ := io.ReadAll(conn)
		fmt.Fprintf(conn, "got %d bytes", len(data))
		_ = conn.Close()
	}()
	p := newProxy(t, listener.Addr().String())
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(make([]byte, 100_000)); err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(conn)
	if err != nil || string(got) != "got 100000 bytes" {
		t.Fatalf("got %q, %v", got, err)
	}
}
