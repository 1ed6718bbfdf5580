package outage

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

const (
	floodEvents   = 3000
	floodWriters  = 8
	floodText     = 9 << 10 // random bytes of each: all of them are more than the history holds
	eventsHistory = 32 << 20
	historySlack  = 2 << 20 // a chunk is dropped whole
)

// A flood of Events in a member, as fast as it takes them, delays nothing else:
// no watch of Pods ends, Pods of either member arrive within 3 s of when a
// member itself tells of them, lists of other kinds are answered, and the
// history of Events keeps to its bound. Afterwards every Event is served, in
// both of its versions.
func TestFloodOfEvents(t *testing.T) {
	awaitLive(t, "m1", "m2")
	ns := memberNamespace(t, "flood", world.m1, world.m2)
	config := labtest.Config(t, world.System)
	pods := "/api/v1/namespaces/" + ns + "/pods"
	from, _ := versions(t, mustAsk(t, config, pods).body)
	query := fmt.Sprintf("%s?watch=1&resourceVersion=%d", pods, from)
	merged := mustWatch(t, config, query)
	own := map[string]*stream{}
	for _, m := range []string{"m1", "m2"} {
		own[m] = mustWatch(t, labtest.Config(t, world.Member(m)), pods+"?watch=1")
	}

	began := time.Now()
	flood := startFlood(t, ns)
	var worst time.Duration
	var history float64
	rounds := 0
	for flood.running() && rounds < 1000 {
		for _, m := range []string{"m1", "m2"} {
			name := fmt.Sprintf("%s-%d", m, rounds)
			if _, err := labtest.Client(t, world.Member(m)).CoreV1().Pods(ns).Create(t.Context(), barePod(ns, name), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			told := own[m].await(t, within(time.Minute), m+" tells of "+name, eventOf("ADDED", name))
			seen := merged.await(t, within(time.Minute), "ADDED "+name+" during the flood", eventOf("ADDED", name))
			worst = max(worst, seen.at.Sub(told.at))
		}
		for _, path := range []string{pods, "/api/v1/nodes", "/api/v1/namespaces/" + ns + "/configmaps"} {
			if a := mustAsk(t, config, path); a.took > within(10*time.Second) {
				t.Errorf("GET %s took %s during the flood", path, a.took)
			}
		}
		history = max(history, sumOf(t, config, "isthmus_cache_history_bytes", `resource="events"`))
		rounds++
	}
	if err := flood.wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d Events in %s; %d rounds, a Pod at most %s after its member told of it; history of Events %.1f MiB",
		floodEvents, time.Since(began).Round(time.Millisecond), rounds, worst, history/(1<<20))
	if rounds < 2 {
		t.Errorf("the flood was over after %d rounds: nothing was seen", rounds)
	}
	if limit := within(3 * time.Second); worst > limit {
		t.Errorf("a Pod arrived %s after its member told of it, want %s at most", worst, limit)
	}
	for path, what := range map[string]string{"/api/v1": "v1", "/apis/events.k8s.io/v1": "events.k8s.io/v1"} {
		labtest.Eventually(t, within(2*time.Minute), func(ctx context.Context) error {
			a, err := ask(ctx, config, path+"/namespaces/"+ns+"/events?labelSelector=flood")
			if err != nil {
				return err
			}
			if _, items := versions(t, a.body); len(items) != floodEvents {
				return fmt.Errorf("%s has %d Events of the flood, want %d", what, len(items), floodEvents)
			}
			return nil
		})
	}
	history = max(history, sumOf(t, config, "isthmus_cache_history_bytes", `resource="events"`))
	if history > eventsHistory+historySlack {
		t.Errorf("the history of Events took %.1f MiB, want %d at most", history/(1<<20), eventsHistory>>20)
	}
	// What was before the flood is still in the history of Pods.
	again := mustWatch(t, config, query)
	again.await(t, within(time.Minute), "the first Pod of the flood", eventOf("ADDED", "m1-0"))
}

// flooding is a flood that has begun.
type flooding struct {
	writers sync.WaitGroup
	over    atomic.Bool
	errs    [floodWriters]error
}

// startFlood writes Events to m1 with no limit of the client's own.
func startFlood(t *testing.T, ns string) *flooding {
	t.Helper()
	client := unlimited(t, labtest.Config(t, world.m1))
	f := &flooding{}
	for i := range f.errs {
		f.writers.Go(func() {
			text := rand.NewChaCha8([32]byte{byte(i)})
			for n := i; n < floodEvents && f.errs[i] == nil; n += floodWriters {
				raw := make([]byte, floodText)
				_, err := text.Read(raw)
				event := floodEvent(ns, n, base64.StdEncoding.EncodeToString(raw))
				if err == nil {
					_, err = client.CoreV1().Events(ns).Create(t.Context(), event, metav1.CreateOptions{})
				}
				f.errs[i] = err
			}
		})
	}
	go func() { f.writers.Wait(); f.over.Store(true) }()
	return f
}

func (f *flooding) running() bool { return !f.over.Load() }

func (f *flooding) wait() error {
	f.writers.Wait()
	return errors.Join(f.errs[:]...)
}

func floodEvent(ns string, n int, text string) *corev1.Event {
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: ns, Name: "flood-" + strconv.Itoa(n), Labels: map[string]string{"flood": "yes"}, Annotations: map[string]string{"text": text}},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: ns, Name: "nobody", UID: types.UID("flood")},
		Reason:         "Flood", Message: "one of many", Type: corev1.EventTypeNormal, Count: 1,
		Source:        corev1.EventSource{Component: "flood"},
		LastTimestamp: metav1.Now(),
	}
}

// sumOf adds up the lines of a metric that have a label.
func sumOf(t testing.TB, config *rest.Config, metric, label string) (sum float64) {
	t.Helper()
	found := false
	for line := range strings.Lines(string(mustAsk(t, config, "/metrics").body)) {
		if !strings.HasPrefix(line, metric+"{") || !strings.Contains(line, label) {
			continue
		}
		found = true
		fields := strings.Fields(line)
		n, err := strconv.ParseFloat(fields[len(fields)-1], 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	if !found {
		t.Fatalf("no metric %s with %s", metric, label)
	}
	return sum
}
