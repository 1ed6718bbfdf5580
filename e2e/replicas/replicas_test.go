package replicas

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

// takeover is how long it may take until writes are taken again.
const takeover = 15 * time.Second

// scene is what goes on while gateways fail.
type scene struct {
	ns       string
	direct   direct
	watched  []*watched
	audits   []labtest.AuditLog
	steps    atomic.Int64
	written  atomic.Int64 // acknowledged through the endpoint
	unserved atomic.Int64 // refused there
	lag      atomic.Int64 // reads that did not have what was acknowledged
	stale    atomic.Value // the first of them
	began    time.Time
	// replicated is an RV up to which both gateways had everything at the
	// beginning of the present step.
	replicated string
}

// Two gateways: when the one that leads fails, another goes on within 15 s. Every
// read has what was acknowledged before, informers have every event, no RV goes
// back, no member is read anew, and no watch expires but from RVs that only a
// leader which was cut off had given out.
func TestLeaderFails(t *testing.T) {
	s := newScene(t)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { s.write(ctx, t) })
	t.Run("reads", s.readsSeeWrites)
	faults := []struct {
		name string
		run  func(t *testing.T, leader string)
		// forks says that the leader goes on alone for a while.
		forks bool
	}{{"killed", s.kill, false}, {"restarted", s.restart, false}, {"frozen", s.freeze, false}, {"cut off", s.cutOff, true}}
	for _, fault := range faults {
		t.Run(fault.name, func(t *testing.T) { s.survives(t, fault.run, fault.forks) })
		if t.Failed() {
			return
		}
	}
	cancel()
	wg.Wait()
	t.Logf("%d writes acknowledged by the endpoint, %d refused meanwhile, %d steps in all", s.written.Load(), s.unserved.Load(), s.steps.Load())
	if s.written.Load() < 20 {
		t.Errorf("%d writes through the endpoint are too few", s.written.Load())
	}
	if n := s.lag.Load(); n > 0 {
		t.Errorf("%d reads did not have what had been acknowledged, first %v", n, s.stale.Load())
	}
	s.membersNotReadAnew(t)
}

func newScene(t *testing.T) *scene {
	s := &scene{ns: labtest.UniqueName(t, "replicas"), direct: newDirect(t)}
	mustLeader(t, within(time.Minute), "")
	for _, name := range gateways {
		awaitReady(t, s.direct, name)
	}
	for _, m := range world.Members {
		client := labtest.Client(t, m)
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.ns}}
		if _, err := client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		labtest.Eventually(t, within(time.Minute), func(ctx context.Context) error {
			_, err := client.CoreV1().ServiceAccounts(s.ns).Get(ctx, "default", metav1.GetOptions{})
			return err
		})
		for i := range podsPerMember {
			s.create(t, client, fmt.Sprintf("%s-%d", m.Name(), i))
		}
	}
	for i := range informers {
		s.watched = append(s.watched, follow(t, labtest.Client(t, world.System), s.ns, i%2 == 0))
	}
	s.settle(t)
	s.began = time.Now()
	for _, m := range world.Members {
		s.audits = append(s.audits, labtest.MemberAudit(t, m))
	}
	return s
}

func (s *scene) create(t testing.TB, client kubernetes.Interface, name string) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			Containers:                    []corev1.Container{{Name: "c", Image: "registry.example.com/c:1"}},
			TerminationGracePeriodSeconds: new(int64),
		},
	}
	if _, err := client.CoreV1().Pods(s.ns).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// settle waits until all informers have what the members have.
func (s *scene) settle(t testing.TB) {
	t.Helper()
	labtest.Eventually(t, within(90*time.Second), func(ctx context.Context) error {
		want, err := held(ctx, t, s.ns)
		if err != nil {
			return err
		}
		if len(want) < podsPerMember {
			return fmt.Errorf("the members have only %d Pods", len(want))
		}
		for i, w := range s.watched {
			// The load goes on: a few differ for a moment.
			if d := differences(want, w.view()); len(d) > 4 {
				return fmt.Errorf("informer %d has %d differences: %v", i, len(d), d[:4])
			}
		}
		return nil
	})
}

// write changes Pods in the members and through the endpoint, and reads through
// the endpoint what was acknowledged.
func (s *scene) write(ctx context.Context, t testing.TB) {
	endpoint := labtest.Client(t, world.System).CoreV1().Pods(s.ns)
	members := []kubernetes.Interface{labtest.Client(t, world.Members[0]), labtest.Client(t, world.Members[1])}
	tick := time.NewTicker(150 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		step := s.steps.Add(1)
		member := rand.IntN(2)
		name := fmt.Sprintf("m%d-%d", member+1, rand.IntN(podsPerMember))
		patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:"%d"}}}`, stepLabel, step)
		limited, cancel := context.WithTimeout(ctx, within(20*time.Second))
		if step%2 == 0 {
			_, err := members[member].CoreV1().Pods(s.ns).Patch(limited, name, types.MergePatchType, patch, metav1.PatchOptions{})
			if err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) {
				t.Errorf("a write to a member: %v", err)
			}
		} else {
			s.writeAndRead(limited, endpoint, name, patch)
		}
		cancel()
	}
}

type pods interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (*corev1.Pod, error)
	Patch(ctx context.Context, name string, kind types.PatchType, data []byte, options metav1.PatchOptions, subresources ...string) (*corev1.Pod, error)
}

func (s *scene) writeAndRead(ctx context.Context, endpoint pods, name string, patch []byte) {
	wrote, err := endpoint.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		s.unserved.Add(1)
		return
	}
	s.written.Add(1)
	read, err := endpoint.Get(ctx, name, metav1.GetOptions{})
	if err == nil && read.UID == wrote.UID && read.Labels[stepLabel] != wrote.Labels[stepLabel] && older(read.ResourceVersion, wrote.ResourceVersion) {
		if s.lag.Add(1) == 1 {
			s.stale.Store(fmt.Sprintf("%s: read at %s as %s, written at %s as %s", name, read.ResourceVersion, read.Labels[stepLabel], wrote.ResourceVersion, wrote.Labels[stepLabel]))
		}
	}
}

func older(a, b string) bool { return len(a) < len(b) || len(a) == len(b) && a < b }

// readsSeeWrites writes through one gateway and reads through the other at once.
func (s *scene) readsSeeWrites(t *testing.T) {
	s.create(t, labtest.Client(t, world.Members[0]), "read")
	path := "/api/v1/namespaces/" + s.ns + "/pods/read"
	labtest.Eventually(t, within(30*time.Second), func(ctx context.Context) error {
		code, body, err := s.direct.ask(ctx, gateways[0], http.MethodGet, path, "")
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("%d %s", code, body)
		}
		return err
	})
	for i := range 60 {
		want := fmt.Sprint("r", i)
		writer, reader := gateways[i%2], gateways[(i/2)%2]
		code, body, err := s.direct.ask(t.Context(), writer, http.MethodPatch, path, fmt.Sprintf(`{"metadata":{"labels":{"step":%q}}}`, want))
		if err != nil || code != http.StatusOK {
			t.Fatalf("a write through %s: %d %s %v", writer, code, body, err)
		}
		var wrote, read corev1.Pod
		if err := json.Unmarshal(body, &wrote); err != nil {
			t.Fatal(err)
		}
		code, body, err = s.direct.ask(t.Context(), reader, http.MethodGet, path, "")
		if err != nil || code != http.StatusOK {
			t.Fatalf("a read through %s: %d %s %v", reader, code, body, err)
		}
		if err := json.Unmarshal(body, &read); err != nil {
			t.Fatal(err)
		}
		if read.Labels[stepLabel] != want || older(read.ResourceVersion, wrote.ResourceVersion) {
			t.Fatalf("written through %s as %s at %s, read through %s as %s at %s", writer, want, wrote.ResourceVersion, reader, read.Labels[stepLabel], read.ResourceVersion)
		}
	}
}

// survives breaks the leader, and looks at how the rest goes on.
func (s *scene) survives(t *testing.T, fault func(t *testing.T, leader string), forks bool) {
	before := len(s.expired())
	old := mustLeader(t, within(30*time.Second), "")
	s.replicated = s.head(t, gateways[0], gateways[1])
	began := time.Now()
	fault(t, old)
	now := mustLeader(t, within(takeover), old)
	took := time.Since(began)
	labtest.Eventually(t, within(takeover), func(ctx context.Context) error {
		code, body, err := s.direct.ask(ctx, now, http.MethodPatch, "/api/v1/namespaces/"+s.ns+"/pods/read", `{"metadata":{"labels":{"step":"after"}}}`)
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("%d %s", code, body)
		}
		return err
	})
	t.Logf("%s leads instead of %s after %s, takes writes after %s", now, old, took.Round(10*time.Millisecond), time.Since(began).Round(10*time.Millisecond))
	s.settle(t)
	s.recover(t, old)
	s.settle(t)
	for i, w := range s.watched {
		w.mu.Lock()
		if len(w.back) > 0 {
			t.Errorf("informer %d: RVs went back: %v", i, w.back[:min(3, len(w.back))])
		}
		w.mu.Unlock()
	}
	expired := s.expired()[before:]
	t.Logf("%d watches of %d informers expired", len(expired), informers)
	for _, rv := range expired {
		if !forks || !older(s.replicated, rv) {
			t.Errorf("a watch from %s expired, both gateways had everything up to %s", rv, s.replicated)
			break
		}
	}
}

// head is an RV up to which all of some gateways have everything.
func (s *scene) head(t testing.TB, of ...string) (lowest string) {
	t.Helper()
	for _, gateway := range of {
		code, body, err := s.direct.ask(t.Context(), gateway, http.MethodGet, "/api/v1/namespaces/"+s.ns+"/pods?limit=1", "")
		var list metav1.PartialObjectMetadataList
		if err == nil && code == http.StatusOK {
			err = json.Unmarshal(body, &list)
		}
		if err != nil || code != http.StatusOK {
			t.Fatalf("a list by %s: %d %s %v", gateway, code, body, err)
		}
		if lowest == "" || older(list.ResourceVersion, lowest) {
			lowest = list.ResourceVersion
		}
	}
	return lowest
}

// expired are the RVs of watches that were too old.
func (s *scene) expired() (all []string) {
	for _, w := range s.watched {
		w.mu.Lock()
		all = append(all, w.expired...)
		w.mu.Unlock()
	}
	return all
}

func (s *scene) kill(t *testing.T, leader string) {
	if err := world.System.Kill(leader); err != nil {
		t.Fatal(err)
	}
}

func (s *scene) restart(t *testing.T, leader string) {
	if err := world.System.StopProcess(leader, 20*time.Second); err != nil {
		t.Fatal(err)
	}
}

// freeze stops the leader beyond its Lease; recover lets it go on.
func (s *scene) freeze(t *testing.T, leader string) {
	if err := world.System.Signal(leader, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
}

// cutOff keeps the leader from the control plane, and from the other gateway.
func (s *scene) cutOff(t *testing.T, leader string) {
	world.up[leader].Cut()
	for _, peer := range world.peers {
		peer.Cut()
	}
}

// recover heals and thaws, waits for the end of the one that was deposed, and
// starts it again.
func (s *scene) recover(t *testing.T, old string) {
	if world.System.PID(old) != 0 {
		if err := world.System.Signal(old, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		for _, proxies := range []map[string]interface{ Heal() error }{healers(world.up), healers(world.peers)} {
			for _, p := range proxies {
				if err := p.Heal(); err != nil {
					t.Fatal(err)
				}
			}
		}
		labtest.Eventually(t, within(30*time.Second), func(context.Context) error {
			if world.System.PID(old) != 0 {
				return fmt.Errorf("%s goes on after another took over", old)
			}
			return nil
		})
	}
	revive(t, s.direct)
}

func healers[P interface{ Heal() error }](in map[string]P) map[string]interface{ Heal() error } {
	out := map[string]interface{ Heal() error }{}
	for name, p := range in {
		out[name] = p
	}
	return out
}

// membersNotReadAnew looks for lists of the Pods of a member. Watches are logged
// when they end: those that the first leader began are in the log as well. Lists
// in pages of 5000 are of metadata, by which a new leader compares what it has, and
// those with a fieldSelector are the endpoint's, which counts the room of a member.
func (s *scene) membersNotReadAnew(t *testing.T) {
	for i, log := range s.audits {
		for _, a := range log.Read(t) {
			compared := strings.Contains(a.RequestURI, "limit=1") || strings.Contains(a.RequestURI, "limit=5000")
			compared = compared || strings.Contains(a.RequestURI, "fieldSelector=")
			anew := a.Verb == "list" && !compared || strings.Contains(a.RequestURI, "sendInitialEvents=true")
			if a.User.Username == labtest.ReadUser && a.ObjectRef.Resource == "pods" && anew && a.Received.After(s.began) {
				t.Errorf("Pods of m%d were read anew: %s %s at %s", i+1, a.Verb, a.RequestURI, a.Received)
			}
		}
	}
}
