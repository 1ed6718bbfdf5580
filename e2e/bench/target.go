package bench

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"

	"k8s.io/client-go/rest"
)

// target is a server that readers are pointed at, and the processes whose CPU
// an answer costs: for the endpoint that is the gateway's first.
type target struct {
	name      string
	base      string
	tls       *tls.Config
	header    http.Header
	processes []process
}

func newTarget(name string, config *rest.Config, processes ...process) (target, error) {
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		return target{}, fmt.Errorf("TLS towards %s: %w", name, err)
	}
	return target{name: name, base: config.Host, tls: tlsConfig, header: http.Header{}, processes: processes}, nil
}

// client has connections of its own, as another program would. Nothing is
// unpacked behind the reader's back.
func (t target) client() *http.Client {
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig: t.tls.Clone(), DisableCompression: true, ForceAttemptHTTP2: true,
	}}
}

// get starts a request; the caller reads and closes the body.
func (t target) get(ctx context.Context, client *http.Client, path string, header http.Header) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, t.base+path, nil)
	if err != nil {
		return nil, fmt.Errorf("GET %s of %s: %w", path, t.name, err)
	}
	for _, h := range []http.Header{t.header, header} {
		for key, values := range h {
			r.Header[key] = values
		}
	}
	answer, err := client.Do(r)
	if err != nil {
		return nil, fmt.Errorf("GET %s of %s: %w", path, t.name, err)
	}
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 2000)) // the status says enough
		_ = answer.Body.Close()
		return nil, fmt.Errorf("GET %s of %s: %s: %s", path, t.name, answer.Status, text)
	}
	return answer, nil
}
