package soak

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
	"github.com/isthmus-dev/isthmus/e2e/soak/stream"
)

// writers each change objects of their own, so that a number never falls.
const writers = 8

// flapping is the member that comes and goes in TestLoad.
const flapping = "m3"

// traffic is what clients do in TestLoad, and what they were answered.
type traffic struct {
	ns     string
	config *rest.Config
	tokens chan struct{}

	mu      sync.Mutex
	counts  map[string]int
	wrong   []string
	written map[string][]stream.Content // by collection: contents that were acknowledged
	tier    map[stream.Content]string   // of a Pod with that content
	pinned  map[string]string           // names of Pods that nobody has deleted, by UID
	deleted map[string]bool             // UIDs of Pods that were perhaps deleted
}

func newTraffic(ns string, config *rest.Config) *traffic {
	return &traffic{
		ns: ns, config: config, tokens: make(chan struct{}, 2*writers), counts: map[string]int{},
		written: map[string][]stream.Content{}, tier: map[stream.Content]string{}, deleted: map[string]bool{}, pinned: map[string]string{},
	}
}

// run sends so many requests a second, as far as the machine can.
func (c *traffic) run(ctx context.Context, rate int, seed uint64) {
	var wg sync.WaitGroup
	for id := range writers {
		w := &writer{traffic: c, id: id, rand: rand.New(rand.NewPCG(seed, uint64(id))), maps: map[string]int64{}}
		wg.Go(func() {
			for ctx.Err() == nil {
				w.step(ctx)
			}
		})
	}
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-tick.C:
			select {
			case c.tokens <- struct{}{}:
			default: // the machine does not keep up
			}
		case <-ctx.Done():
		}
	}
	wg.Wait()
}

func (c *traffic) fault(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.wrong) < 30 {
		c.wrong = append(c.wrong, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
	}
}

// ask sends one request when it is its turn.
func (c *traffic) ask(ctx context.Context, what, method, path string, body any, header ...string) (labtest.Answer, bool) {
	select {
	case <-c.tokens:
	case <-ctx.Done():
		return labtest.Answer{}, false
	}
	var data []byte
	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			c.fault("%v", err)
			return labtest.Answer{}, false
		}
	}
	// What has begun is ended: its answer counts.
	a, err := labtest.Request(context.WithoutCancel(ctx), c.config, method, path, data, append([]string{"Accept", "application/json"}, header...)...)
	c.mu.Lock()
	c.counts[what]++
	c.mu.Unlock()
	if err != nil {
		c.fault("%s %s: %v", method, path, err)
		return a, false
	}
	return a, true
}

type writer struct {
	*traffic
	id   int
	rand *rand.Rand
	n    int64
	maps map[string]int64 // ConfigMaps that are there
}

func (w *writer) next() int64 {
	w.n++
	return w.n
}

func (w *writer) pods() string { return "/api/v1/namespaces/" + w.ns + "/pods" }
func (w *writer) configMaps() string {
	return "/api/v1/namespaces/" + w.ns + "/configmaps"
}

func (w *writer) step(ctx context.Context) {
	switch chance := w.rand.IntN(10); {
	case chance < 2:
		w.list(ctx)
	case chance < 7:
		w.pod(ctx)
	default:
		w.configMap(ctx)
	}
}

// list reads all Pods: those that nobody has deleted are in it, whatever their
// member does.
func (w *writer) list(ctx context.Context) []served {
	before := w.living()
	a, ok := w.ask(ctx, "LIST", http.MethodGet, w.pods(), nil)
	if !ok {
		return nil
	}
	var list struct {
		Items []served `json:"items"`
	}
	if a.Code != http.StatusOK || json.Unmarshal(a.Body, &list) != nil {
		w.fault("LIST: %s", a)
		return nil
	}
	there := map[string]bool{}
	for _, p := range list.Items {
		there[string(p.Metadata.UID)] = true
	}
	deleted := w.gone()
	for uid, name := range before {
		if !there[uid] && !deleted[uid] {
			w.fault("a LIST lacks %s (%s)", name, uid)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range list.Items {
		if p.Metadata.DeletionTimestamp == nil {
			w.pinned[string(p.Metadata.UID)] = p.Metadata.Name
		}
	}
	return list.Items
}

func (w *writer) living() map[string]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.pinned)
}

func (w *writer) gone() map[string]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.deleted)
}

// pod changes or deletes a Pod of the writer's own, by what it has just read.
func (w *writer) pod(ctx context.Context) {
	pods := slices.DeleteFunc(w.list(ctx), func(p served) bool {
		h := fnv.New32a()
		_, _ = h.Write([]byte(p.Metadata.UID)) // a hash never fails
		return int(h.Sum32()%writers) != w.id || p.Metadata.DeletionTimestamp != nil
	})
	if len(pods) == 0 {
		return
	}
	pod := pods[w.rand.IntN(len(pods))].Metadata
	member, uid, path := pod.Labels[clusterLabel], string(pod.UID), w.pods()+"/"+pod.Name
	if w.rand.IntN(20) == 0 {
		w.mu.Lock() // before it is asked: a LIST meanwhile may have it or not
		w.deleted[uid] = true
		delete(w.pinned, uid)
		w.mu.Unlock()
		a, ok := w.ask(ctx, "DELETE of a Pod", http.MethodDelete, path, map[string]any{"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": map[string]any{"uid": uid}}, "Content-Type", "application/json")
		w.judge(member, "DELETE "+path, a, ok)
		return
	}
	n, tier := w.next(), string(rune('a'+w.rand.IntN(2)))
	patch := map[string]any{"metadata": map[string]any{
		"uid": uid, "resourceVersion": pod.ResourceVersion, "annotations": map[string]string{numbered: fmt.Sprint(n)}, "labels": map[string]string{"tier": tier},
	}}
	a, ok := w.ask(ctx, "PATCH of a Pod", http.MethodPatch, path, patch, "Content-Type", "application/merge-patch+json")
	if !w.judge(member, "PATCH "+path, a, ok) {
		return
	}
	content := stream.Content{UID: uid, N: n}
	w.mu.Lock()
	w.tier[content] = tier
	if member != flapping {
		w.written["pods"] = append(w.written["pods"], content)
	}
	w.mu.Unlock()
	w.readBack(ctx, path, uid, n)
}

// judge says whether a write was made; a refusal must have a reason.
func (w *writer) judge(member, what string, a labtest.Answer, ok bool) bool {
	switch {
	case !ok:
		return false
	case a.Code/100 == 2:
		return true
	case a.Code == http.StatusConflict || a.Code == http.StatusNotFound:
		return false // somebody was faster: a kubelet, a controller
	case member == flapping && a.Code >= 500:
		return false
	}
	w.fault("%s in %s: %s", what, member, a)
	return false
}

// readBack: a write that was acknowledged is seen by whoever reads next.
func (w *writer) readBack(ctx context.Context, path, uid string, n int64) {
	a, ok := w.ask(ctx, "GET", http.MethodGet, path, nil)
	if !ok || a.Code == http.StatusNotFound && strings.Contains(path, "/pods/") {
		return // the Pod is gone
	}
	var o served
	if a.Code != http.StatusOK || json.Unmarshal(a.Body, &o) != nil {
		w.fault("GET %s: %s", path, a)
		return
	}
	if string(o.Metadata.UID) == uid && o.number() < n {
		w.fault("GET %s after n %d was acknowledged has n %d", path, n, o.number())
	}
}

// configMap makes, changes or deletes one of the writer's ConfigMaps.
func (w *writer) configMap(ctx context.Context) {
	name := fmt.Sprintf("map-%d-%d", w.id, w.rand.IntN(4))
	path := w.configMaps() + "/" + name
	n := w.next()
	object := map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name, "annotations": map[string]string{numbered: fmt.Sprint(n)}},
		"data": map[string]string{"n": fmt.Sprint(n)},
	}
	var a labtest.Answer
	var ok bool
	_, there := w.maps[name]
	switch {
	case !there:
		a, ok = w.ask(ctx, "POST of a ConfigMap", http.MethodPost, w.configMaps(), object, "Content-Type", "application/json")
	case w.rand.IntN(10) == 0:
		a, ok = w.ask(ctx, "DELETE of a ConfigMap", http.MethodDelete, path, nil)
		if ok && a.Code == http.StatusOK {
			delete(w.maps, name)
		} else if ok {
			w.fault("DELETE %s: %s", path, a)
		}
		return
	default:
		a, ok = w.ask(ctx, "PATCH of a ConfigMap", http.MethodPatch, path, object, "Content-Type", "application/merge-patch+json")
	}
	if !ok {
		return
	}
	if !there && a.Code == http.StatusConflict {
		return // the last one of that name is still being deleted
	}
	var o served
	if a.Code/100 != 2 || json.Unmarshal(a.Body, &o) != nil {
		w.fault("%s: %s", path, a)
		return
	}
	w.maps[name] = n
	w.mu.Lock()
	w.written["configmaps"] = append(w.written["configmaps"], stream.Content{UID: string(o.Metadata.UID), N: n})
	w.mu.Unlock()
	w.readBack(ctx, path, string(o.Metadata.UID), n)
}

func (c *traffic) report(t *testing.T, least int) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.wrong {
		t.Error(w)
	}
	sum := 0
	for _, n := range c.counts {
		sum += n
	}
	if sum < least || len(c.written["pods"]) < least/50 || len(c.written["configmaps"]) < least/50 {
		t.Errorf("the run shows too little: %d requests, %v; %d Pods and %d ConfigMaps written", sum, c.counts, len(c.written["pods"]), len(c.written["configmaps"]))
	}
}
