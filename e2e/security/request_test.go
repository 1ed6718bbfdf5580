package security

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"testing"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

func mustParse(text string) *url.URL {
	u, err := url.Parse(text)
	if err != nil {
		panic(err)
	}
	return u
}

func dryEviction(ns, pod string) *policyv1.Eviction {
	return &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: ns, Name: pod},
		DeleteOptions: &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}},
	}
}

// runIn makes a bare Pod in a cluster and waits until it runs.
func runIn(t testing.TB, ns, name, cluster string) {
	t.Helper()
	admin := world.System.Kubeconfig()
	labtest.Eventually(t, 30*time.Second, func(context.Context) error {
		res := labtest.Kubectl(t, admin, "", "-n", ns, "run", name, "--image=registry.example.com/web:1", "--labels=isthmus.dev/cluster="+cluster,
			`--overrides={"spec":{"containers":[{"name":"c","image":"registry.example.com/web:1"}]}}`)
		if res.Code != 0 {
			return errorOf(res)
		}
		return nil
	})
	labtest.MustKubectl(t, admin, "", "-n", ns, "wait", "--for=condition=Ready", "pod/"+name, "--timeout=150s")
}

type failed string

func (f failed) Error() string { return string(f) }

func errorOf(res labtest.Result) error { return failed(res.Out + res.Err) }

// reply to one request.
type reply struct {
	code   int
	header http.Header
	body   string
	took   time.Duration
}

// send sends one request and reads at most a MiB of the answer.
func send(ctx context.Context, t testing.TB, config *rest.Config, method, path string, body io.Reader, header ...string) (reply, error) {
	t.Helper()
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, config.Host+path, body)
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; n+1 < len(header); n += 2 {
		r.Header.Set(header[n], header[n+1])
	}
	started := time.Now()
	resp, err := transport.RoundTrip(r)
	if err != nil {
		return reply{took: time.Since(started)}, err
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	data, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return reply{resp.StatusCode, resp.Header, string(data), time.Since(started)}, err
}

// askAs is the code of a GET with a token and further headers.
func askAs(ctx context.Context, t testing.TB, token, path string, header ...string) int {
	t.Helper()
	a, err := send(ctx, t, withToken(t, token), http.MethodGet, path, http.NoBody, header...)
	if err != nil {
		t.Errorf("GET %s: %v", path, err)
	}
	return a.code
}
