package membership

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/isthmus-dev/isthmus/pkg/federation/apis/cluster/v1alpha1"
)

func get(t *testing.T, config *rest.Config, path string) (int, error) {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Get(config.Host + path)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

func TestMemberBecomesReadyAndIsRecorded(t *testing.T) {
	f := playFleet(t, nil)
	f.add("m1", playMember(t, "uid-1", "t1"), "t1", nil)
	f.eventually("m1 Ready with identity and order", func() bool {
		c := f.get("m1")
		return f.condition("m1", "Ready") == "True ClusterReady" && c.Spec.ID == "uid-1" && hasOrder(c)
	})
	f.add("m0", playMember(t, "uid-0", "t0"), "t0", nil)
	f.eventually("m0 is in the Directory, usable", func() bool {
		m, ok := f.Get("m0")
		return ok && m.Ready && m.UID == "uid-0"
	})
	// A write that met a conflict leaves a number out; the order counts.
	if got := names(f.List()); !slices.Equal(got, []string{"m1", "m0"}) {
		t.Errorf("order = %v", got)
	}
	m, _ := f.Get("m0")
	if code, err := get(t, m.Read, "/readyz"); err != nil || code != http.StatusOK {
		t.Errorf("through the config: %d, %v", code, err)
	}
	if m.Apply != m.Read {
		t.Error("without a Secret of its own the apply identity is the read identity")
	}
	if _, err := get(t, m.Read, "/redirect"); !errors.Is(err, ErrForeignHost) {
		t.Errorf("a redirect to another host: %v", err)
	}
}

func TestSameClusterUnderTwoNames(t *testing.T) {
	f := playFleet(t, nil)
	first := playMember(t, "uid-1", "t")
	f.add("m1", first, "t", nil)
	f.eventually("m1 Ready", func() bool { return f.condition("m1", "Ready") == "True ClusterReady" })
	f.add("m2", first, "t", nil)
	f.add("self", playMember(t, selfUID, "t"), "t", nil)
	// One that claims the identity from the start loses to the earlier.
	f.add("m3", first, "t", func(c *v1alpha1.Cluster, _ *corev1.Secret) { c.Spec.ID = "uid-1" })
	for _, name := range []string{"m2", "m3", "self"} {
		f.eventually(name+" is refused", func() bool { return f.condition(name, "Ready") == "False DuplicateIdentity" })
		m, _ := f.Get(name)
		if _, err := get(t, m.Read, "/readyz"); !errors.Is(err, ErrDuplicateIdentity) {
			t.Errorf("%s: a request: %v", name, err)
		}
	}
	if got := f.get("m2").Spec.ID; got != "" {
		t.Errorf("m2 was given the identity %s", got)
	}
	if got := f.condition("m1", "Ready"); got != "True ClusterReady" {
		t.Errorf("m1: %s", got)
	}
	if err := f.clusters.Delete(t.Context(), "m1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.eventually("m3 takes the place of m1", func() bool { return f.condition("m3", "Ready") == "True ClusterReady" })
}

func TestIdentityChangeIsConfirmedBySpecID(t *testing.T) {
	f := playFleet(t, nil)
	member := playMember(t, "uid-1", "t")
	f.add("m1", member, "t", nil)
	f.eventually("m1 Ready", func() bool { return f.condition("m1", "Ready") == "True ClusterReady" })
	m, _ := f.Get("m1")
	member.change(func() { member.uid = "uid-2" })
	f.eventually("IdentityChanged", func() bool { return f.condition("m1", "Ready") == "False IdentityChanged" })
	if _, err := get(t, m.Read, "/readyz"); !errors.Is(err, ErrIdentityChanged) {
		t.Errorf("a request to the other cluster: %v", err)
	}
	if _, err := f.clusters.Patch(t.Context(), "m1", types.MergePatchType, []byte(`{"spec":{"id":"uid-2"}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	f.eventually("Ready as the new one", func() bool {
		m, _ := f.Get("m1")
		return m.Ready && m.UID == "uid-2"
	})
	if code, err := get(t, m.Read, "/readyz"); err != nil || code != http.StatusOK {
		t.Errorf("after the confirmation: %d, %v", code, err)
	}
}

// TestIdentityIsCheckedOnReconnect replaces the cluster behind an address and
// sends at once, before any probe could have seen it.
func TestIdentityIsCheckedOnReconnect(t *testing.T) {
	f := playFleet(t, func(o *Options) { o.Timing.Probe = time.Hour })
	member := playMember(t, "uid-1", "t")
	f.add("m1", member, "t", func(c *v1alpha1.Cluster, _ *corev1.Secret) { c.Spec.ID = "uid-1" })
	f.eventually("m1 in the Directory", func() bool { m, ok := f.Get("m1"); return ok && m.Ready })
	m, _ := f.Get("m1")
	if _, err := get(t, m.Read, "/readyz"); err != nil {
		t.Fatal(err)
	}
	member.change(func() { member.uid = "uid-2" })
	f.mu.Lock()
	l := f.links["m1"]
	f.mu.Unlock()
	l.trust.doubt() // what a broken connection does
	var before int
	member.change(func() { before = len(member.requests) })
	_, err := get(t, m.Read, "/writes-something")
	if !errors.Is(err, ErrIdentityChanged) {
		t.Errorf("err = %v, want ErrIdentityChanged", err)
	}
	member.change(func() {
		for _, r := range member.requests[before:] {
			if strings.Contains(r, "writes-something") {
				t.Error("the request reached the other cluster")
			}
		}
	})
}

func TestBrokenConnectionRaisesDoubt(t *testing.T) {
	f := playFleet(t, func(o *Options) { o.Timing.Probe = time.Hour })
	member := playMember(t, "uid-1", "t")
	f.add("m1", member, "t", func(c *v1alpha1.Cluster, _ *corev1.Secret) { c.Spec.ID = "uid-1" })
	f.eventually("m1 in the Directory", func() bool { m, ok := f.Get("m1"); return ok && m.Ready })
	m, _ := f.Get("m1")
	if _, err := get(t, m.Read, "/readyz"); err != nil {
		t.Fatal(err)
	}
	member.server.CloseClientConnections()
	member.server.Close()
	if _, err := get(t, m.Read, "/readyz"); err == nil {
		t.Fatal("a closed server answers")
	}
	f.mu.Lock()
	l := f.links["m1"]
	f.mu.Unlock()
	if confirmed, _, _ := l.trust.state(); confirmed {
		t.Error("the identity is still taken for granted")
	}
}

func TestTokenFollowsTheSecret(t *testing.T) {
	f := playFleet(t, nil)
	member := playMember(t, "uid-1", "old")
	f.add("m1", member, "old", nil)
	f.eventually("Ready", func() bool { return f.condition("m1", "Ready") == "True ClusterReady" })
	m, _ := f.Get("m1")
	member.change(func() { member.tokens = map[string]bool{"new": true} })
	f.eventually("Unauthorized", func() bool {
		return f.condition("m1", "Ready") == "False Unauthorized" && f.condition("m1", "CredentialsValid") == "False Unauthorized"
	})
	secrets := f.kube.CoreV1().Secrets(v1alpha1.CredentialsNamespace)
	secret, err := secrets.Get(t.Context(), "m1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	secret.Data["token"] = []byte("new")
	if _, err := secrets.Update(t.Context(), secret, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	f.eventually("Ready again", func() bool { return f.condition("m1", "Ready") == "True ClusterReady" })
	if now, _ := f.Get("m1"); now.Read != m.Read {
		t.Error("the new token made a new config")
	}
	if code, err := get(t, m.Read, "/readyz"); err != nil || code != http.StatusOK {
		t.Errorf("the old config with the new token: %d, %v", code, err)
	}
}

func TestTokenIsRenewedAtFourFifths(t *testing.T) {
	f := playFleet(t, nil)
	now := time.Now()
	young := jwtOf(now.Add(-79*time.Minute), now.Add(21*time.Minute))
	old := jwtOf(now.Add(-81*time.Minute), now.Add(19*time.Minute))
	fresh := jwtOf(now, now.Add(100*time.Minute))
	rotated := func(_ *v1alpha1.Cluster, s *corev1.Secret) {
		s.Annotations = map[string]string{v1alpha1.ServiceAccountAnnotation: "isthmus-system/isthmus-read"}
	}
	var issued atomic.Int32
	issue := func() string { issued.Add(1); return fresh }
	m1, m2, m3 := playMember(t, "uid-1", old), playMember(t, "uid-2", young), playMember(t, "uid-3", old)
	for _, m := range []*playedMember{m1, m2, m3} {
		m.change(func() { m.issue = issue })
	}
	f.add("m1", m1, old, rotated)
	f.add("m2", m2, young, rotated)
	f.add("m3", m3, old, nil) // a token that somebody else looks after
	f.eventually("m1's Secret has a new token", func() bool {
		secret, err := f.kube.CoreV1().Secrets(v1alpha1.CredentialsNamespace).Get(t.Context(), "m1", metav1.GetOptions{})
		return err == nil && string(secret.Data["token"]) == fresh && len(secret.Data["caBundle"]) > 0
	})
	f.eventually("all Ready", func() bool {
		return f.condition("m1", "Ready") == "True ClusterReady" && f.condition("m2", "Ready") == "True ClusterReady" && f.condition("m3", "Ready") == "True ClusterReady"
	})
	time.Sleep(100 * time.Millisecond) // several probes
	if n := issued.Load(); n != 1 {
		t.Errorf("%d tokens were issued, want 1", n)
	}
	m1.change(func() { delete(m1.tokens, old) })
	time.Sleep(100 * time.Millisecond)
	if got := f.condition("m1", "CredentialsValid"); got != "True CredentialsValid" {
		t.Errorf("after the end of the old token: %s", got)
	}
}

func TestNoCredentials(t *testing.T) {
	f := playFleet(t, nil)
	member := playMember(t, "uid-1", "t")
	f.add("m1", member, "t", func(_ *v1alpha1.Cluster, s *corev1.Secret) { s.Data["caBundle"] = []byte("none") })
	f.add("m2", member, "t", func(c *v1alpha1.Cluster, _ *corev1.Secret) { c.Spec.SecretRef.Namespace = "default" })
	f.add("m3", member, "t", func(_ *v1alpha1.Cluster, s *corev1.Secret) { s.Labels = map[string]string{v1alpha1.MemberLabel: "m9"} })
	for _, name := range []string{"m1", "m2", "m3"} {
		f.eventually(name+" says so", func() bool {
			return f.condition(name, "Ready") == "False InvalidCredentials" && f.condition(name, "CredentialsValid") == "False InvalidCredentials"
		})
		if m, ok := f.Get(name); !ok || m.Read != nil || m.Apply != nil {
			t.Errorf("%s: member %+v", name, m)
		}
	}
}

func TestSyncStateIsKeptAndRemembered(t *testing.T) {
	f := playFleet(t, nil)
	f.add("m1", playMember(t, "uid-1", "t"), "t", nil)
	f.eventually("Ready", func() bool { return f.condition("m1", "Ready") == "True ClusterReady" })
	if got := f.condition("m1", "CacheSynced"); got != "" {
		t.Errorf("CacheSynced before any cache spoke: %s", got)
	}
	f.SetCacheSynced("m1", false, "loading")
	f.eventually("not synced", func() bool { return f.condition("m1", "CacheSynced") == "False NotSynced" })
	f.SetCacheSynced("m1", true, "")
	f.eventually("synced", func() bool {
		m, _ := f.Get("m1")
		return f.condition("m1", "CacheSynced") == "True Synced" && m.EverSynced
	})
	f.SetCacheSynced("m1", false, "behind")
	f.eventually("not synced again", func() bool { return f.condition("m1", "CacheSynced") == "False NotSynced" })
	if m, _ := f.Get("m1"); !m.EverSynced {
		t.Error("forgot that it was synced")
	}
}

// TestRestartKeepsTheLastKnownState starts with a Cluster that was Ready and
// does not answer: it stays Ready for the whole threshold.
func TestRestartKeepsTheLastKnownState(t *testing.T) {
	f := playFleet(t, func(o *Options) { o.Thresholds.Failure = 400 * time.Millisecond })
	member := playMember(t, "uid-1", "t")
	member.server.Close()
	began := time.Now()
	f.add("m1", member, "t", func(c *v1alpha1.Cluster, _ *corev1.Secret) {
		c.Spec.ID = "uid-1"
		meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "ClusterReady"})
	})
	f.eventually("m1 in the Directory, unreachable", func() bool { m, ok := f.Get("m1"); return ok && !m.Reachable })
	if m, _ := f.Get("m1"); !m.Ready && time.Since(began) < 400*time.Millisecond {
		t.Error("not Ready at once")
	}
	f.eventually("not Ready", func() bool { return f.condition("m1", "Ready") == "False ClusterNotReachable" })
	if took := time.Since(began); took < 400*time.Millisecond {
		t.Errorf("not Ready after %s", took)
	}
}

func TestFollowerWritesNothing(t *testing.T) {
	f := playFleet(t, func(o *Options) { o.Leads = func() bool { return false } })
	f.add("m1", playMember(t, "uid-1", "t"), "t", func(c *v1alpha1.Cluster, _ *corev1.Secret) {
		c.Spec.ID = "uid-1"
		c.Annotations = map[string]string{v1alpha1.JoinOrderAnnotation: "7"}
	})
	f.eventually("m1 usable", func() bool { m, _ := f.Get("m1"); return m.Ready && m.Order == 7 })
	if c := f.get("m1"); len(c.Status.Conditions) != 0 {
		t.Errorf("a follower wrote %v", c.Status.Conditions)
	}
}

func TestLeaving(t *testing.T) {
	f := playFleet(t, nil)
	f.add("m1", playMember(t, "uid-1", "t"), "t", nil)
	f.eventually("Ready", func() bool { m, _ := f.Get("m1"); return m.Ready })
	m, _ := f.Get("m1")
	changes := make(chan Change, 10)
	defer f.Subscribe(func(c Change) { changes <- c })()
	if c := <-changes; c.Kind != Joined {
		t.Fatalf("first change = %v", c.Kind)
	}
	if err := f.clusters.Delete(t.Context(), "m1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for c := range changes {
		if c.Kind == Left {
			break
		}
	}
	if _, err := get(t, m.Read, "/readyz"); !errors.Is(err, ErrLeft) {
		t.Errorf("a request after it left: %v", err)
	}
}
