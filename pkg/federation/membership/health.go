package membership

import (
	"time"

	"github.com/isthmus-dev/isthmus/pkg/federation/apis/cluster/v1alpha1"
)

// Verdict is the outcome of one probe of a member.
type Verdict uint8

// Verdicts, from good to worse.
const (
	VerdictReady Verdict = iota
	VerdictNotReady
	VerdictUnreachable
	VerdictUnauthorized
	VerdictForbidden
	VerdictInvalidCredentials
	VerdictIdentityChanged
	VerdictDuplicateIdentity
)

// Reason is the reason of the condition Ready for a verdict.
func (v Verdict) Reason() string {
	switch v {
	case VerdictReady:
		return v1alpha1.ReasonClusterReady
	case VerdictNotReady:
		return v1alpha1.ReasonClusterNotReady
	case VerdictUnreachable:
		return v1alpha1.ReasonClusterNotReachable
	case VerdictUnauthorized:
		return v1alpha1.ReasonUnauthorized
	case VerdictForbidden:
		return v1alpha1.ReasonForbidden
	case VerdictInvalidCredentials:
		return v1alpha1.ReasonInvalidCredentials
	case VerdictIdentityChanged:
		return v1alpha1.ReasonIdentityChanged
	case VerdictDuplicateIdentity:
		return v1alpha1.ReasonDuplicateIdentity
	}
	return v1alpha1.ReasonClusterNotReady
}

// Reachable reports whether the member answered at all, as itself.
func (v Verdict) Reachable() bool {
	switch v {
	case VerdictReady, VerdictNotReady, VerdictUnauthorized, VerdictForbidden:
		return true
	case VerdictUnreachable, VerdictInvalidCredentials, VerdictIdentityChanged, VerdictDuplicateIdentity:
		return false
	}
	return false
}

// immediate verdicts are proof, not weather: no threshold delays them.
func (v Verdict) immediate() bool {
	return v == VerdictIdentityChanged || v == VerdictDuplicateIdentity
}

// Thresholds are how long an outcome must last before it counts.
type Thresholds struct {
	Failure, Success time.Duration
}

// Health is the readiness of a member over time.
//
//	         failing for Failure, or proof
//	Ready  ------------------------------->  not Ready
//	       <-------------------------------
//	 succeeding for Success, or eager and one success
//
// A member without history (not Known) takes the first outcome as it comes.
// At our own start Known and Ready come from the stored condition, so that the
// last known state is kept until a whole window has been observed.
type Health struct {
	Known   bool
	Ready   bool
	Reason  string
	Message string
	// Last is the verdict of the last probe, Probed whether there was one.
	Last   Verdict
	Probed bool
	// Since is when Ready last changed.
	Since time.Time

	// failingSince and passingSince are the start of the present run of
	// equal outcomes; at most one is set.
	failingSince, passingSince time.Time
	// eager: the cause of the failure was taken away (new credentials, new
	// address, confirmed identity), so one success is enough.
	eager bool
}

// Renewed returns the health after the way to the member was changed.
func (h Health) Renewed() Health {
	h.eager = true
	h.failingSince, h.passingSince = time.Time{}, time.Time{}
	return h
}

// Observe returns the health after one more probe.
func (h Health) Observe(now time.Time, v Verdict, message string, t Thresholds) Health {
	h.Last, h.Probed = v, true
	if v == VerdictReady {
		return h.passed(now, message, t)
	}
	return h.failed(now, v, message, t)
}

func (h Health) passed(now time.Time, message string, t Thresholds) Health {
	h.failingSince = time.Time{}
	if h.passingSince.IsZero() {
		h.passingSince = now
	}
	if h.Ready || !h.Known || h.eager || now.Sub(h.passingSince) >= t.Success {
		return h.turn(now, true, VerdictReady.Reason(), message)
	}
	return h
}

func (h Health) failed(now time.Time, v Verdict, message string, t Thresholds) Health {
	h.passingSince = time.Time{}
	if h.failingSince.IsZero() {
		h.failingSince = now
	}
	if !h.Ready || !h.Known || v.immediate() || now.Sub(h.failingSince) >= t.Failure {
		// eager outlives the failures after a change: what was changed
		// may take a moment to work.
		return h.turn(now, false, v.Reason(), message)
	}
	return h
}

func (h Health) turn(now time.Time, ready bool, reason, message string) Health {
	if !h.Known || h.Ready != ready {
		h.Since = now
	}
	if ready {
		h.eager = false
	}
	h.Known, h.Ready, h.Reason, h.Message = true, ready, reason, message
	return h
}
