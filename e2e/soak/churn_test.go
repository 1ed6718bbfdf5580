package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
	"github.com/isthmus-dev/isthmus/e2e/soak/judge"
)

// clientLimit is how long a client waits for an answer; the endpoint is told.
const clientLimit = 12 * time.Second

// workers write, each to objects of its own.
const workers = 4

// churn creates, changes, moves and deletes applications through both replicas,
// and logs what it was told.
type churn struct {
	ns      string
	clients [2]dynamic.Interface

	mu     sync.Mutex
	writes []judge.Write
	counts map[string]int
}

func newChurn(t testing.TB, ns string) *churn {
	t.Helper()
	c := &churn{ns: ns, counts: map[string]int{}}
	for i, s := range world.replicas {
		config := labtest.Config(t, s)
		config.Timeout = clientLimit
		client, err := dynamic.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		c.clients[i] = client
	}
	return c
}

func (c *churn) run(ctx context.Context, seed uint64) {
	var wg sync.WaitGroup
	for id := range workers {
		w := &worker{churn: c, id: id, rand: rand.New(rand.NewPCG(seed, uint64(id))), n: map[judge.Key]int64{}, at: id % 2}
		wg.Go(func() { w.run(ctx) })
	}
	wg.Wait()
}

func (c *churn) log(w judge.Write) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writes = append(c.writes, w)
	verb := "write"
	if w.Delete {
		verb = "delete"
	}
	c.counts[fmt.Sprintf("%s %s %s", verb, w.Kind, [...]string{"unknown", "acknowledged", "refused"}[w.Outcome])]++
}

func (c *churn) all() []judge.Write {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.writes)
}

func (c *churn) summary() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]int{}
	for k, n := range c.counts {
		out[k] = n
	}
	return out
}

// worker is one client, which uses the other replica when one does not answer.
type worker struct {
	*churn
	id    int
	rand  *rand.Rand
	at    int // the replica in use
	round int
	app   *app
	n     map[judge.Key]int64
}

// app is a Deployment, a ConfigMap and a Service with one policy.
type app struct {
	name string
	// objects that are there, and those that are being deleted.
	live map[string]bool
	left int // changes until it is deleted
}

func (w *worker) run(ctx context.Context) {
	for ctx.Err() == nil {
		w.step(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(100+w.rand.IntN(300)) * time.Millisecond):
		}
	}
}

func (w *worker) step(ctx context.Context) {
	if w.app == nil {
		w.begin(ctx)
		return
	}
	w.app.left--
	kind := kindNames[w.rand.IntN(len(kindNames))]
	switch chance := w.rand.IntN(10); {
	case w.app.left <= 0:
		w.end(ctx)
	case chance < 2:
		w.update(ctx, judge.Policy)
	case chance < 3 && w.app.live[kind]:
		w.remove(ctx, kind)
	case !w.app.live[kind]:
		w.create(ctx, kind)
	default:
		w.update(ctx, kind)
	}
}

// begin makes a new application: what has an unknown end is left as it is.
func (w *worker) begin(ctx context.Context) {
	w.round++
	w.app = &app{name: fmt.Sprintf("app-%d-%d", w.id, w.round), live: map[string]bool{}, left: 10 + w.rand.IntN(15)}
	if !w.create(ctx, judge.Policy) {
		w.app = nil
		return
	}
	for _, kind := range kindNames {
		if w.app != nil {
			w.create(ctx, kind)
		}
	}
}

// end deletes an application's objects; half of them are left to the end.
func (w *worker) end(ctx context.Context) {
	if w.rand.IntN(2) == 0 {
		for _, kind := range kindNames {
			if w.app != nil && w.app.live[kind] {
				w.remove(ctx, kind)
			}
		}
	}
	w.app = nil
}

func (w *worker) key(kind string) judge.Key { return judge.Key{Kind: kind, Name: w.app.name} }

func (w *worker) api(kind string) dynamic.ResourceInterface {
	return w.clients[w.at].Resource(resources[kind]).Namespace(w.ns)
}

// sent logs a request by its answer. After an answer that leaves it open what
// happened to a creation or a deletion, nobody touches the object again.
func (w *worker) sent(ctx context.Context, entry judge.Write, err error) bool {
	entry.Done, entry.Outcome = time.Now(), outcome(err)
	w.log(entry)
	if err != nil && ctx.Err() == nil && entry.Outcome == judge.Unknown {
		w.at = 1 - w.at
	}
	return entry.Outcome == judge.Acknowledged
}

// outcome is what an answer says about a write.
func outcome(err error) judge.Outcome {
	if err == nil {
		return judge.Acknowledged
	}
	status, ok := err.(apierrors.APIStatus) //nolint:errorlint // an answer is not wrapped
	if !ok {
		return judge.Unknown
	}
	if code := status.Status().Code; code >= 400 && code < 500 && code != http.StatusRequestTimeout {
		return judge.Refused
	}
	return judge.Unknown
}

func (w *worker) create(ctx context.Context, kind string) bool {
	key := w.key(kind)
	w.n[key]++
	u, entry := w.content(key)
	entry.Sent = time.Now()
	created, err := w.api(kind).Create(ctx, u, metav1.CreateOptions{})
	if err == nil {
		entry.UID = string(created.GetUID())
		w.app.live[kind] = true
	}
	acknowledged := w.sent(ctx, entry, err)
	if outcome(err) == judge.Unknown {
		w.app = nil
	}
	return acknowledged
}

func (w *worker) update(ctx context.Context, kind string) {
	key := w.key(kind)
	before, err := w.api(kind).Get(ctx, key.Name, metav1.GetOptions{})
	if err != nil {
		w.at = 1 - w.at
		return
	}
	if before.GetDeletionTimestamp() != nil {
		return
	}
	w.n[key]++
	u, entry := w.content(key)
	// The resourceVersion keeps what arrives late from undoing what came after.
	u.SetResourceVersion(before.GetResourceVersion())
	u.SetFinalizers(before.GetFinalizers())
	keep(u, before)
	entry.UID, entry.Sent = string(before.GetUID()), time.Now()
	_, err = w.api(kind).Update(ctx, u, metav1.UpdateOptions{})
	w.sent(ctx, entry, err)
}

func (w *worker) remove(ctx context.Context, kind string) {
	key := w.key(kind)
	before, err := w.api(kind).Get(ctx, key.Name, metav1.GetOptions{})
	if err != nil {
		w.at = 1 - w.at
		return
	}
	uid := before.GetUID()
	entry := judge.Write{Key: key, Delete: true, UID: string(uid), Sent: time.Now()}
	err = w.api(kind).Delete(ctx, key.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: new(types.UID(uid))}})
	w.app.live[kind] = false
	w.sent(ctx, entry, err)
	if outcome(err) == judge.Unknown {
		w.app = nil
	}
}

// keep leaves to the control plane what is its own.
func keep(u, before *unstructured.Unstructured) {
	if u.GetKind() != "Service" {
		return
	}
	for _, field := range []string{"clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"} {
		if value, found, err := unstructured.NestedFieldCopy(before.Object, "spec", field); found && err == nil {
			u.Object["spec"].(map[string]any)[field] = value
		}
	}
}
