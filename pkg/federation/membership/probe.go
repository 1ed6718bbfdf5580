package membership

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// maxProbeBody bounds what is read of one answer to a probe.
const maxProbeBody = 64 << 10

// observation is what one probe saw.
type observation struct {
	verdict Verdict
	message string
	// uid is the UID of the member's kube-system namespace, "" when it was
	// not seen.
	uid types.UID
	// late: no answer came within the time that there was.
	late bool
}

// prober asks a member how it is over a connection of its own, past the gate.
type prober struct {
	client  *http.Client
	host    string
	token   func() string
	timeout time.Duration
}

func newProber(config *rest.Config, token func() string, timeout time.Duration) (*prober, error) {
	own := rest.CopyConfig(config)
	own.WrapTransport = nil
	rt, err := rest.TransportFor(own)
	if err != nil {
		return nil, fmt.Errorf("transport of the probe: %w", err)
	}
	return &prober{
		client: &http.Client{
			Transport:     rt,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		host: strings.TrimSuffix(config.Host, "/"), token: token, timeout: timeout,
	}, nil
}

// observe asks for health and identity.
func (p *prober) observe(ctx context.Context) observation {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	code, body, err := p.get(ctx, "/readyz", "")
	if err != nil {
		return observation{verdict: VerdictUnreachable, message: explain(err, p.timeout), late: errors.Is(err, context.DeadlineExceeded)}
	}
	if code == http.StatusUnauthorized {
		return observation{verdict: VerdictUnauthorized, message: "the member does not accept our credentials (401)"}
	}
	seen := p.identity(ctx)
	if seen.verdict != VerdictReady {
		return seen
	}
	switch code {
	case http.StatusOK:
		return observation{verdict: VerdictReady, message: "the member's API is ready", uid: seen.uid}
	case http.StatusForbidden:
		return observation{verdict: VerdictForbidden, message: "our identity may not GET /readyz in the member (403): join it again", uid: seen.uid}
	default:
		return observation{
			verdict: VerdictNotReady, uid: seen.uid,
			message: fmt.Sprintf("GET /readyz answers %d: %s", code, excerpt(body)),
		}
	}
}

// identity asks for the UID of kube-system.
func (p *prober) identity(ctx context.Context) observation {
	code, body, err := p.get(ctx, "/api/v1/namespaces/"+metav1.NamespaceSystem,
		"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json")
	if err != nil {
		return observation{verdict: VerdictUnreachable, message: explain(err, p.timeout), late: errors.Is(err, context.DeadlineExceeded)}
	}
	switch code {
	case http.StatusOK:
	case http.StatusUnauthorized:
		return observation{verdict: VerdictUnauthorized, message: "the member does not accept our credentials (401)"}
	case http.StatusForbidden:
		return observation{verdict: VerdictForbidden, message: "our identity may not get the namespace kube-system in the member (403), so it cannot be recognised: join it again"}
	default:
		return observation{verdict: VerdictNotReady, message: fmt.Sprintf("GET of the namespace kube-system answers %d: %s", code, excerpt(body))}
	}
	var ns metav1.PartialObjectMetadata
	if err := json.Unmarshal(body, &ns); err != nil || ns.UID == "" || ns.Name != metav1.NamespaceSystem {
		return observation{verdict: VerdictNotReady, message: "the answer for the namespace kube-system is not one of a Kubernetes API"}
	}
	return observation{verdict: VerdictReady, uid: ns.UID}
}

func (p *prober) get(ctx context.Context, path, accept string) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.host+path, nil)
	if err != nil {
		return 0, nil, fmt.Errorf("request for %s: %w", path, err)
	}
	if accept != "" {
		req.Header.Set("Accept", accept)
	}
	if token := p.token(); token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxProbeBody))
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return 0, nil, fmt.Errorf("answer to GET %s: %w", path, err)
	}
	return resp.StatusCode, body, nil
}

// forget drops kept connections, so that the next question meets whoever
// answers at the address now.
func (p *prober) forget() { p.client.CloseIdleConnections() }

// explain turns a transport error into a stable sentence: no ports of ours, no
// durations, so that a condition does not change with every probe.
func explain(err error, timeout time.Duration) string {
	var opErr *net.OpError
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("no answer within %s", timeout)
	case errors.As(err, &opErr) && opErr.Op == "dial" && opErr.Err != nil:
		return excerpt([]byte(fmt.Sprintf("cannot connect to %v: %v", opErr.Addr, opErr.Err)))
	case errors.As(err, &opErr) && opErr.Err != nil:
		return excerpt([]byte(fmt.Sprintf("connection broke: %v", opErr.Err)))
	}
	return excerpt([]byte(err.Error()))
}

// excerpt makes a member's words fit to be shown: printable, one line, short.
func excerpt(b []byte) string {
	const limit = 256
	s := strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case !unicode.IsPrint(r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(string(b[:min(len(b), 4*limit)]), ""))
	s = strings.TrimSpace(s)
	if r := []rune(s); len(r) > limit {
		return string(r[:limit]) + "..."
	}
	return s
}
