package membership

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isthmus-dev/isthmus/pkg/federation/apis/cluster/v1alpha1"
)

// expiryWarning is how long before the end of a credential that nobody rotates
// the condition begins to warn.
const expiryWarning = 7 * 24 * time.Hour

// credential is what is known of one credential of a member.
type credential struct {
	name     string // "read token", "apply client certificate" ...
	validity validity
	rotated  bool   // we renew it ourselves
	failure  string // why the last renewal failed
}

// syncState is what the cache last said of a member.
type syncState struct {
	synced  bool
	message string
}

// findings is everything that the conditions of a Cluster are made from.
type findings struct {
	health      Health
	credentials []credential
	sync        *syncState // nil: no cache has spoken
	apis        *apiFinding
	// applyVerdict is Unauthorized or Forbidden when the member treats the
	// apply identity so.
	applyVerdict Verdict
	// impersonateProblem is why users cannot be impersonated, where they are to be.
	impersonateProblem error
	generation         int64
}

// apiFinding says how complete the discovery was.
type apiFinding struct {
	failed []string // group versions that could not be listed
	empty  bool
}

// conditionsOf returns the conditions after the findings, with the times of
// those that did not turn taken from before.
func conditionsOf(before []metav1.Condition, f findings, now time.Time) []metav1.Condition {
	out := make([]metav1.Condition, len(before))
	copy(out, before)
	set := func(c metav1.Condition) {
		c.ObservedGeneration = f.generation
		c.LastTransitionTime = metav1.NewTime(now)
		meta.SetStatusCondition(&out, c)
	}
	if f.health.Known {
		c := readyCondition(f.health)
		set(c)
	}
	if f.health.Probed {
		set(credentialsCondition(f, now))
	}
	if f.sync != nil {
		set(syncCondition(f))
	}
	if f.apis != nil {
		set(apisCondition(*f.apis))
	}
	return out
}

func readyCondition(h Health) metav1.Condition {
	c := metav1.Condition{
		Type: v1alpha1.ClusterConditionReady, Status: metav1.ConditionFalse,
		Reason: h.Reason, Message: h.Message,
	}
	if h.Ready {
		c.Status = metav1.ConditionTrue
	}
	if c.Reason == "" {
		c.Reason = v1alpha1.ReasonClusterNotReady
	}
	return c
}

func syncCondition(f findings) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ClusterConditionCacheSynced, Message: f.sync.message}
	switch {
	case f.sync.synced:
		c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonSynced
	case f.health.Probed && f.health.Last == VerdictUnreachable:
		c.Status, c.Reason = metav1.ConditionUnknown, v1alpha1.ReasonClusterNotReachable
	default:
		c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.ReasonNotSynced
	}
	return c
}

func apisCondition(f apiFinding) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ClusterConditionCompleteAPIEnablements}
	switch {
	case f.empty:
		c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.ReasonEmptyAPIs
		c.Message = "the member's APIs could not be listed"
	case len(f.failed) > 0:
		c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.ReasonPartialAPIs
		c.Message = "not listed, taken as before: " + strings.Join(f.failed, ", ")
	default:
		c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonFullAPIs
		c.Message = "all APIs of the member are listed"
	}
	return c
}

// credentialsCondition says whether the member takes our credentials, and for
// how long it will.
func credentialsCondition(f findings, now time.Time) metav1.Condition {
	c := metav1.Condition{
		Type: v1alpha1.ClusterConditionCredentialsValid, Status: metav1.ConditionFalse,
		Reason: f.health.Last.Reason(),
	}
	switch f.health.Last {
	case VerdictUnauthorized:
		c.Message = "the member does not accept our credentials (401): write valid ones to the Secret, or join it again"
	case VerdictForbidden:
		c.Message = "the member accepts our credentials but refuses what they need (403): join it again"
	case VerdictInvalidCredentials:
		c.Message = f.health.Message
	case VerdictUnreachable, VerdictIdentityChanged, VerdictDuplicateIdentity:
		c.Status = metav1.ConditionUnknown
		c.Message = "the credentials were not tried"
	case VerdictReady, VerdictNotReady:
		c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonCredentialsValid
		c.Message = "the member accepts our credentials"
	}
	if c.Status == metav1.ConditionTrue && f.applyVerdict != VerdictReady {
		c.Status, c.Reason = metav1.ConditionFalse, f.applyVerdict.Reason()
		c.Message = "the member does not accept the apply identity: write valid credentials to the Secret NAME-apply, or join it again"
	}
	if c.Status == metav1.ConditionTrue && f.impersonateProblem != nil {
		c.Status, c.Reason = metav1.ConditionFalse, VerdictInvalidCredentials.Reason()
		c.Message = "users are not let through, spec.impersonatorSecretRef: " + excerpt([]byte(f.impersonateProblem.Error()))
	}
	return withExpiry(c, f.credentials, now)
}

// withExpiry adds to the condition what is to be said of the credentials' end.
func withExpiry(c metav1.Condition, credentials []credential, now time.Time) metav1.Condition {
	var notes []string
	for _, cr := range credentials {
		note, reason := cr.note(now)
		if note == "" {
			continue
		}
		notes = append(notes, note)
		if reason == v1alpha1.ReasonCredentialsExpired {
			c.Status, c.Reason = metav1.ConditionFalse, reason
		} else if reason != "" && c.Reason == v1alpha1.ReasonCredentialsValid {
			c.Reason = reason
		}
	}
	if len(notes) > 0 {
		c.Message += "; " + strings.Join(notes, "; ")
	}
	return c
}

// note is one sentence about the end of a credential, and the reason when
// something has to be done.
func (cr credential) note(now time.Time) (note, reason string) {
	end := cr.validity.notAfter
	if end.IsZero() {
		return "", ""
	}
	at := end.Format(time.RFC3339)
	switch {
	case !now.Before(end):
		return cr.name + " expired at " + at, v1alpha1.ReasonCredentialsExpired
	case cr.rotated && now.Before(cr.validity.overdueAt()):
		return fmt.Sprintf("%s valid until %s, renewed before", cr.name, at), ""
	case cr.rotated:
		failure := cr.failure
		if failure == "" {
			failure = "no attempt has succeeded"
		}
		return fmt.Sprintf("%s expires at %s and could not be renewed: %s", cr.name, at, failure), v1alpha1.ReasonCredentialsExpiring
	case now.Add(expiryWarning).After(end):
		return fmt.Sprintf("%s expires at %s: renew it", cr.name, at), v1alpha1.ReasonCredentialsExpiring
	}
	return fmt.Sprintf("%s valid until %s", cr.name, at), ""
}
