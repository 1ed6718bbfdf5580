package labtest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

// Answer of one HTTP request.
type Answer struct {
	Code   int
	Header http.Header
	Body   []byte
}

func (a Answer) String() string { return fmt.Sprintf("%d %.300s", a.Code, a.Body) }

const requestLimit = 30 * time.Second

// Request sends one request as it stands, with headers as names and values in
// turn, and reads the whole answer, for at most half a minute.
func Request(ctx context.Context, config *rest.Config, method, path string, body []byte, header ...string) (Answer, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return Answer{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(config.Host, "/")+path, bytes.NewReader(body))
	if err != nil {
		return Answer{}, err
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := client.Do(r)
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close() //nolint:errcheck // read to the end
	data, err := io.ReadAll(resp.Body)
	return Answer{resp.StatusCode, resp.Header, data}, err
}
