package membership

import (
	"testing"
	"testing/synctest"
	"time"
)

type step struct {
	after   time.Duration
	verdict Verdict
	renewed bool // the way to the member was changed before the probe
	ready   bool
	reason  string // checked when not empty
}

func TestHealth(t *testing.T) {
	th := Thresholds{Failure: 30 * time.Second, Success: 30 * time.Second}
	const s = time.Second
	ready := Health{Known: true, Ready: true, Reason: "ClusterReady"}
	down := Health{Known: true, Ready: false, Reason: "ClusterNotReachable"}
	for name, tc := range map[string]struct {
		start Health
		steps []step
	}{
		"a new member is Ready at once": {Health{}, []step{{0, VerdictReady, false, true, "ClusterReady"}}},
		"a new member that fails says so at once, and is Ready after the threshold": {Health{}, []step{
			{0, VerdictForbidden, false, false, "Forbidden"},
			{10 * s, VerdictReady, false, false, "Forbidden"},
			{30 * s, VerdictReady, false, true, "ClusterReady"},
		}},
		"a freeze shows after the threshold and not before": {ready, []step{
			{0, VerdictUnreachable, false, true, "ClusterReady"},
			{15 * s, VerdictUnreachable, false, true, ""},
			{14 * s, VerdictUnreachable, false, true, ""},
			{1 * s, VerdictUnreachable, false, false, "ClusterNotReachable"},
		}},
		"flapping is not death": {ready, []step{
			{0, VerdictUnreachable, false, true, ""},
			{20 * s, VerdictUnreachable, false, true, ""},
			{9 * s, VerdictReady, false, true, ""},
			{10 * s, VerdictUnreachable, false, true, ""},
			{29 * s, VerdictUnreachable, false, true, ""},
			{1 * s, VerdictReady, false, true, ""},
		}},
		"nor life": {down, []step{
			{0, VerdictReady, false, false, ""},
			{29 * s, VerdictReady, false, false, "ClusterNotReachable"},
			{0, VerdictUnreachable, false, false, ""},
			{10 * s, VerdictReady, false, false, ""},
			{29 * s, VerdictReady, false, false, ""},
			{1 * s, VerdictReady, false, true, "ClusterReady"},
		}},
		"different failures count together": {ready, []step{
			{0, VerdictUnreachable, false, true, ""},
			{15 * s, VerdictNotReady, false, true, ""},
			{15 * s, VerdictUnauthorized, false, false, "Unauthorized"},
		}},
		"the reason of a member that is down follows what is seen": {down, []step{
			{0, VerdictUnauthorized, false, false, "Unauthorized"},
			{1 * s, VerdictNotReady, false, false, "ClusterNotReady"},
		}},
		"a changed identity needs no threshold": {ready, []step{
			{0, VerdictIdentityChanged, false, false, "IdentityChanged"},
		}},
		"new credentials make one success enough": {down, []step{
			{0, VerdictUnauthorized, false, false, "Unauthorized"},
			{10 * s, VerdictUnauthorized, true, false, "Unauthorized"},
			{1 * s, VerdictReady, false, true, "ClusterReady"},
			{1 * s, VerdictUnreachable, false, true, ""}, // and the patience is back
		}},
		"new credentials do not cut the patience short": {ready, []step{
			{0, VerdictReady, true, true, ""},
			{1 * s, VerdictUnauthorized, false, true, ""},
			{29 * s, VerdictUnauthorized, false, true, ""},
			{1 * s, VerdictUnauthorized, false, false, "Unauthorized"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := tc.start
				for i, st := range tc.steps {
					time.Sleep(st.after)
					if st.renewed {
						h = h.Renewed()
					}
					was := h
					h = h.Observe(time.Now(), st.verdict, "", th)
					if h.Ready != st.ready || (st.reason != "" && h.Reason != st.reason) {
						t.Fatalf("step %d: ready %v reason %s, want %v %s", i, h.Ready, h.Reason, st.ready, st.reason)
					}
					if turned := h.Ready != was.Ready || !was.Known; turned != h.Since.Equal(time.Now()) && st.after > 0 {
						t.Fatalf("step %d: Since = %s, turned %v", i, h.Since, turned)
					}
				}
			})
		})
	}
}
