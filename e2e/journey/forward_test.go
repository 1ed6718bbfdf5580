package journey

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/httpstream" //nolint:staticcheck // the dialers of client-go still speak it
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	transport "k8s.io/client-go/transport/spdy"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

// forwarders are the two ways to forward a port.
func forwarders(t *testing.T, config *rest.Config, u *url.URL) map[string]httpstream.Dialer {
	t.Helper()
	rt, upgrader, err := transport.RoundTripperFor(config)
	if err != nil {
		t.Fatal(err)
	}
	tunnel, err := portforward.NewSPDYOverWebsocketDialer(u, config)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]httpstream.Dialer{"spdy": transport.NewDialer(upgrader, &http.Client{Transport: rt}, http.MethodPost, u), "websocket": tunnel}
}

// A forwarded port outlives connections that are broken off, and serves several
// at a time.
func TestForwardedPorts(t *testing.T) {
	t.Parallel()
	ns := labtest.Namespace(t, world.System.Kubeconfig())
	for _, name := range []string{"spdy", "websocket"} {
		t.Run(name, func(t *testing.T) {
			pod := runPod(t, world.System.Kubeconfig(), ns, name)
			client := labtest.Client(t, world.System)
			u := client.CoreV1().RESTClient().Post().Namespace(ns).Resource("pods").Name(pod).SubResource("portforward").URL()
			dialer := forwarders(t, labtest.Config(t, world.System), u)[name]
			stop, ready, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
			f, err := portforward.New(dialer, []string{"0:80", "0:8080"}, stop, ready, io.Discard, io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			go func() { done <- f.ForwardPorts() }()
			defer func() {
				close(stop)
				if err := <-done; err != nil {
					t.Logf("the forwarding ended with %v", err)
				}
			}()
			select {
			case <-ready:
			case err := <-done:
				done <- err
				t.Fatal(err)
			case <-time.After(30 * time.Second):
				t.Fatal("not ready")
			}
			ports, err := f.GetPorts()
			if err != nil {
				t.Fatal(err)
			}
			for range 20 {
				breakOff(t, int(ports[0].Local))
			}
			var wg sync.WaitGroup
			errs := make([]error, 6)
			for i := range errs {
				wg.Go(func() { errs[i] = fetch(t.Context(), int(ports[i%2].Local)) })
			}
			wg.Wait()
			if err := errors.Join(errs...); err != nil {
				t.Errorf("after connections that were broken off: %v", err)
			}
		})
	}
}

// breakOff opens a connection, begins a request and leaves.
func breakOff(t *testing.T, port int) {
	t.Helper()
	d := net.Dialer{Timeout: 5 * time.Second}
	conn, err := d.DialContext(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n"); err != nil {
		t.Error(err)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		err = tcp.SetLinger(0) // a reset, not an end
	}
	if err = errors.Join(err, conn.Close()); err != nil {
		t.Error(err)
	}
}

func fetch(ctx context.Context, port int) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/", port), http.NoBody)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(r)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err == nil && (resp.StatusCode != http.StatusOK || len(body) == 0) {
		err = fmt.Errorf("port %d answers %s, %d bytes", port, resp.Status, len(body))
	}
	return err
}
