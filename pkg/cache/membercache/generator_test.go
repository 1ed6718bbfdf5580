//go:build !race

package membercache

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/isthmus-dev/isthmus/pkg/cache/cachetest"
)

// generator is an API server of two members, m1 and m2, that have realistic Pods
// and nothing else. It sends what kube-apiserver would send over the wire, and
// keeps none of it.
type generator struct {
	order [2][]int // numbers of Pods in the order of their keys
	rate  int      // changes a second, of both members
}

const generatorEnv = "ISTHMUS_GENERATOR"

// TestGenerator is the process of the generator; it runs when startGenerator
// starts it.
func TestGenerator(t *testing.T) {
	file, spec, ok := strings.Cut(os.Getenv(generatorEnv), " ")
	if !ok {
		t.Skip("it is a part of TestScale")
	}
	var pods int
	g := &generator{}
	if _, err := fmt.Sscan(spec, &pods, &g.rate); err != nil {
		t.Fatal(err)
	}
	for n, i := range inOrder(pods) {
		g.order[n%2] = append(g.order[n%2], i)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file+".new", []byte(l.Addr().String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); os.Exit(0) }() // ends with its parent
	t.Error(http.Serve(l, g))                                        //nolint:gosec // a test
}

// startGenerator starts the process, and gives the configs of its members.
func startGenerator(t *testing.T, pods, rate int) (m1, m2 *rest.Config) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "address")
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestGenerator$", "-test.timeout=0")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %d", generatorEnv, file, pods, rate))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stdin.Close(); _ = cmd.Wait() })
	for {
		address, err := os.ReadFile(file)
		if err == nil {
			return &rest.Config{Host: "http://" + string(address) + "/m1"}, &rest.Config{Host: "http://" + string(address) + "/m2"}
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-t.Context().Done():
			t.Fatal(err)
		}
	}
}

func (g *generator) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	member, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	q := r.URL.Query()
	switch {
	case path == "api/v1/namespaces/kube-system":
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kube-system","uid":%q}}`, member)
	case q.Get("watch") == "true":
		w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
		s := &generated{w: w, rv: 10_000_000}
		pods := path == "api/v1/pods"
		if q.Get("sendInitialEvents") == "true" {
			if pods {
				for _, i := range g.of(member) {
					s.send("ADDED", cachetest.RealisticPod(i))
				}
			}
			s.bookmark(true)
		} else if rv, err := strconv.Atoi(q.Get("resourceVersion")); err == nil {
			s.rv = rv
		}
		if pods {
			g.change(r, s, g.of(member))
		} else {
			g.change(r, s, nil)
		}
	case path == "api/v1/pods":
		w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
		list := corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(1 << 40)}}
		raw, _ := list.Marshal()
		_, _ = w.Write(wrapped("PodList", raw))
	default:
		http.NotFound(w, r)
	}
}

func (g *generator) of(member string) []int {
	if member == "m1" {
		return g.order[0]
	}
	return g.order[1]
}

// change changes one Pod after the other, and says where it stands.
func (g *generator) change(r *http.Request, s *generated, order []int) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for n, sent := 0, 0; ; n++ {
		for ; sent < n*g.rate/2/10 && len(order) > 0; sent++ {
			s.rv++
			p := cachetest.RealisticPod(order[sent*7919%len(order)])
			p.ResourceVersion = strconv.Itoa(s.rv)
			p.Status.Conditions[2].LastTransitionTime = metav1.Now()
			p.Status.ContainerStatuses[1].RestartCount = int32(n)
			s.send("MODIFIED", p)
		}
		if n%50 == 0 {
			s.bookmark(false)
		}
		if f, ok := s.w.(http.Flusher); ok {
			f.Flush()
		}
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		}
	}
}

// generated is one watch.
type generated struct {
	w  io.Writer
	rv int
}

func (s *generated) bookmark(initialEnd bool) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: strconv.Itoa(s.rv)}}
	if initialEnd {
		p.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	s.send("BOOKMARK", p)
}

// send writes one event as it goes over the wire. A reader that has gone ends
// the watch by its context.
func (s *generated) send(kind string, p *corev1.Pod) {
	raw, err := p.Marshal()
	if err != nil {
		panic(err)
	}
	object := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), wrapped("Pod", raw))
	event := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), kind)
	event = protowire.AppendBytes(protowire.AppendTag(event, 2, protowire.BytesType), object)
	_, _ = s.w.Write(binary.BigEndian.AppendUint32(nil, uint32(len(event)))) //nolint:gosec // a test
	_, _ = s.w.Write(event)
}

// wrapped puts a message into the envelope of the API.
func wrapped(kind string, raw []byte) []byte {
	typ := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "v1")
	typ = protowire.AppendString(protowire.AppendTag(typ, 2, protowire.BytesType), kind)
	out := protowire.AppendBytes(protowire.AppendTag([]byte("k8s\x00"), 1, protowire.BytesType), typ)
	return protowire.AppendBytes(protowire.AppendTag(out, 2, protowire.BytesType), raw)
}
