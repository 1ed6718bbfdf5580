package soak

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
	"github.com/isthmus-dev/isthmus/e2e/soak/judge"
	"github.com/isthmus-dev/isthmus/e2e/soak/plan"
)

// tolerance of the judge: the engine gives what it has begun twice the time of a
// request (15 s), a member that stood still does what it had received, and a busy
// machine reads the store late.
var tolerance = judge.Tolerance{InFlight: 50 * time.Second, Late: 15 * time.Second}

// settleLimit bounds how long the engine may take when all is whole again: its
// queues back off, and a breaker asks once a minute.
const settleLimit = 5 * time.Minute

// What clients write arrives, whatever breaks meanwhile: no object that should
// live is deleted, none that should go survives, no stale write lands.
func TestChaos(t *testing.T) {
	d := newDiary(t)
	d.note("SOAK_SEED=%d SOAK_DURATION=%s", size.seed, size.duration)
	ns := labtest.NamespaceName(t)
	labtest.MustKubectl(t, world.System.Kubeconfig(), "", "create", "namespace", ns)
	logs := map[string]labtest.AuditLog{}
	for _, m := range world.Members {
		logs[m.Name()] = labtest.MemberAudit(t, m)
	}
	recorded := followIntents(t, ns)
	awaitNamespace(t, ns)
	c := newChurn(t, ns)
	busy, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { c.run(busy, size.seed) })
	time.Sleep(2 * time.Second)

	s := newSaboteur(d)
	s.run(t.Context(), plan.Deal(size.seed, deck(), gapOf(), size.duration-10*time.Second), size.seed)
	d.note("whole again; %d processes had ended by themselves", s.restart)
	stop()
	wg.Wait()
	whole(t)
	d.note("all run; clients: %v", c.summary())
	settle(t, d, ns, c.all())
	quiet(t, d, ns, logs)
	verdict(t, d, ns, c, recorded, logs, s)
	compared(t, d)
}

// gapOf spreads one deck over the short run.
func gapOf() time.Duration {
	if size.long {
		return 9 * time.Second
	}
	return size.duration / time.Duration(len(deck())+2)
}

func awaitNamespace(t testing.TB, ns string) {
	t.Helper()
	for _, m := range world.Members {
		client := labtest.Client(t, m)
		labtest.Eventually(t, 2*time.Minute, func(ctx context.Context) error {
			_, err := client.CoreV1().Namespaces().Get(ctx, ns, metav1.GetOptions{})
			return err
		})
	}
}

// settle waits until the end agrees with what clients were told.
func settle(t testing.TB, d *diary, ns string, writes []judge.Write) {
	t.Helper()
	began := time.Now()
	labtest.Eventually(t, settleLimit, func(ctx context.Context) error {
		templates, err := templatesOf(ctx, ns)
		if err != nil {
			return err
		}
		copies, err := copiesOf(ctx, ns)
		if err != nil {
			return err
		}
		if found := judge.Final(writes, templates, copies); len(found) > 0 {
			time.Sleep(time.Second)
			return errors.New(strings.Join(found, "\n"))
		}
		d.note("settled after %s: %d templates and policies, %d copies", time.Since(began).Round(time.Second), len(templates), len(copies))
		return nil
	})
}

// quiet waits for some seconds in which the engine writes nothing: it does not
// fight over what has settled.
func quiet(t testing.TB, d *diary, ns string, logs map[string]labtest.AuditLog) {
	t.Helper()
	labtest.Eventually(t, 2*time.Minute, func(context.Context) error {
		since := time.Now()
		time.Sleep(5 * time.Second)
		changes, _ := changesOf(t, ns, logs)
		if found := judge.Quiet(changes, since); len(found) > 0 {
			return errors.New(strings.Join(found, "\n"))
		}
		return nil
	})
	d.note("quiet")
}

const shownFindings = 20

// verdict judges every write of the run.
func verdict(t *testing.T, d *diary, ns string, c *churn, recorded *intents, logs map[string]labtest.AuditLog, s *saboteur) {
	t.Helper()
	changes, foreign := changesOf(t, ns, logs)
	found, report := judge.Changes(c.all(), recorded.all(), changes, tolerance)
	found = append(found, foreign...)
	for i, finding := range found {
		if i == shownFindings {
			t.Errorf("and %d more", len(found)-i)
			break
		}
		t.Error(finding)
	}
	injected := map[string]int{}
	for _, i := range world.injectors {
		for kind, n := range i.Counts() {
			injected[kind] += n
		}
	}
	d.note("judged %+v of %d requests, %d records of placements; faults %v, injected %v", report, len(changes), len(recorded.all()), s.counts, injected)
	summary := c.summary()
	if report.Creations < 10 || report.Updates < 10 || report.Deletions < 3 || summary["write PropagationPolicy acknowledged"] < 3 {
		t.Errorf("the run shows too little: %+v, clients %v", report, summary)
	}
	if len(report.Epochs) < 2 {
		t.Errorf("one leader wrote all: %v", report.Epochs)
	}
	for _, f := range deck() {
		if !slices.ContainsFunc(f.Targets, func(target string) bool { return s.counts[f.Kind+" "+target] > 0 }) {
			t.Errorf("%s was never done to any of %v", f.Kind, f.Targets)
		}
	}
	if n := len(injected); n < 5 {
		t.Errorf("only %s was injected", fmt.Sprint(injected))
	}
}
