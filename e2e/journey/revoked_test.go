package journey

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

// openFor is the timeoutSeconds of the watches that are open while the right goes.
const openFor = 20

// A right that is taken away while watches are open acts as at one API server:
// each request from then on is refused, cached and streamed alike, the resume of
// the open watch as well, and what is open ends by the timeout it began with.
func TestRevokedRight(t *testing.T) {
	t.Parallel()
	admin := world.System.Kubeconfig()
	ns := labtest.Namespace(t, admin)
	labtest.MustKubectl(t, admin, readerRole, "-n", ns, "apply", "-f", "-")
	runPod(t, admin, ns, "web")
	bob := filepath.Join(t.TempDir(), "bob.kubeconfig")
	if _, err := world.System.Command(t.Context(), "kubeconfig", "--user", "bob", "--data-dir", world.System.DataDir(),
		"--kubeconfig", admin, "-o", bob); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", bob)
	if err != nil {
		t.Fatal(err)
	}
	pods := "/api/v1/namespaces/" + ns + "/pods"
	requests := map[string]string{
		"get": pods + "/web", "list": pods, "page": pods + "?limit=1", "watch": pods + "?watch=true&timeoutSeconds=1",
		"WatchList": pods + "?watch=true&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
		"logs":      pods + "/web/log",
	}
	for what, path := range requests {
		labtest.Eventually(t, time.Minute, func(ctx context.Context) error { return answers(ctx, config, what, path, http.StatusOK) })
	}
	var list metav1.PartialObjectMetadataList
	a, err := labtest.Request(t.Context(), config, http.MethodGet, pods, nil, "Accept", "application/json")
	if err := errors.Join(err, json.Unmarshal(a.Body, &list)); err != nil {
		t.Fatalf("%v: %s", err, a)
	}
	began := time.Now()
	open := map[string]*openWatch{}
	for what, query := range map[string]string{
		"watch":     "&resourceVersion=" + list.ResourceVersion,
		"WatchList": "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
	} {
		open[what] = openTheWatch(t, config, fmt.Sprintf("%s?watch=true&timeoutSeconds=%d%s", pods, openFor, query))
	}

	labtest.MustKubectl(t, admin, "", "-n", ns, "delete", "rolebinding", "reader")
	requests["resume"] = pods + "?watch=true&timeoutSeconds=1&resourceVersion=" + list.ResourceVersion
	for what, path := range requests {
		labtest.Eventually(t, time.Minute, func(ctx context.Context) error { return answers(ctx, config, what, path, http.StatusForbidden) })
	}
	if res := labtest.Kubectl(t, bob, "", "-n", ns, "exec", "web", "--", "true"); res.Code != 1 || !strings.Contains(res.Err, "forbidden") {
		t.Errorf("exec without the right: %+v", res)
	}
	if res := labtest.Kubectl(t, bob, "", "-n", ns, "auth", "can-i", "watch", "pods"); strings.TrimSpace(res.Out) != "no" {
		t.Errorf("can-i without the right: %+v", res)
	}
	for what, w := range open {
		select {
		case err := <-w.end:
			if err != nil {
				t.Errorf("the %s ended with %v after %s, want a clean end", what, err, time.Since(began))
			}
		case <-time.After(time.Until(began.Add((openFor + 60) * time.Second))):
			t.Errorf("the %s of %d s is open after %s", what, openFor, time.Since(began))
		}
	}
}

func answers(ctx context.Context, config *rest.Config, what, path string, want int) error {
	a, err := labtest.Request(ctx, config, http.MethodGet, path, nil)
	if err == nil && a.Code != want {
		err = fmt.Errorf("%s: GET %s answers %s, want %d", what, path, a, want)
	}
	return err
}

type openWatch struct {
	end chan error // of the stream; nil for a clean end
}

func openTheWatch(t *testing.T, config *rest.Config, path string) *openWatch {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(r) //nolint:bodyclose // whoever reads it closes it
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %s, %v", path, resp.Status, resp.Body.Close())
	}
	w := &openWatch{end: make(chan error, 1)}
	go func() {
		_, err := io.Copy(io.Discard, resp.Body)
		w.end <- errors.Join(err, resp.Body.Close())
	}()
	return w
}
