package membership

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func TestConditions(t *testing.T) {
	day := 24 * time.Hour
	until := func(d time.Duration) validity { return validity{notBefore: noon.Add(-30 * day), notAfter: noon.Add(d)} }
	seen := func(v Verdict) Health {
		return Health{Known: true, Ready: v == VerdictReady, Reason: v.Reason(), Message: "m", Last: v, Probed: true}
	}
	for name, tc := range map[string]struct {
		f    findings
		want map[string]string // type -> "Status Reason"
		says string            // in the message of CredentialsValid
	}{
		"nothing known": {findings{}, map[string]string{"Ready": "", "CredentialsValid": "", "CacheSynced": "", "CompleteAPIEnablements": ""}, ""},
		"well": {
			findings{health: seen(VerdictReady), sync: &syncState{synced: true}, apis: &apiFinding{}},
			map[string]string{"Ready": "True ClusterReady", "CredentialsValid": "True CredentialsValid", "CacheSynced": "True Synced", "CompleteAPIEnablements": "True FullAPIEnablements"},
			"accepts",
		},
		"frozen": {
			findings{health: seen(VerdictUnreachable), sync: &syncState{}},
			map[string]string{"Ready": "False ClusterNotReachable", "CredentialsValid": "Unknown ClusterNotReachable", "CacheSynced": "Unknown ClusterNotReachable"},
			"not tried",
		},
		"still within the threshold": {
			findings{health: Health{Known: true, Ready: true, Reason: "ClusterReady", Last: VerdictUnauthorized, Probed: true}},
			map[string]string{"Ready": "True ClusterReady", "CredentialsValid": "False Unauthorized"},
			"401",
		},
		"another cluster": {
			findings{health: seen(VerdictIdentityChanged)},
			map[string]string{"Ready": "False IdentityChanged", "CredentialsValid": "Unknown IdentityChanged"},
			"",
		},
		"the apply identity is refused": {
			findings{health: seen(VerdictReady), applyVerdict: VerdictUnauthorized},
			map[string]string{"Ready": "True ClusterReady", "CredentialsValid": "False Unauthorized"},
			"apply",
		},
		"users cannot be impersonated": {
			findings{health: seen(VerdictReady), impersonateProblem: ErrNoCredentials},
			map[string]string{"Ready": "True ClusterReady", "CredentialsValid": "False InvalidCredentials"},
			"impersonatorSecretRef",
		},
		"healthy but not loaded": {
			findings{health: seen(VerdictReady), sync: &syncState{message: "12 of 14 kinds"}},
			map[string]string{"CacheSynced": "False NotSynced", "Ready": "True ClusterReady"},
			"",
		},
		"partial discovery": {
			findings{health: seen(VerdictReady), apis: &apiFinding{failed: []string{"metrics.k8s.io/v1beta1"}}},
			map[string]string{"CompleteAPIEnablements": "False PartialAPIEnablements"},
			"",
		},
		"a certificate that ends in 8 days": {
			findings{health: seen(VerdictReady), credentials: []credential{{name: "read certificate", validity: until(8 * day)}}},
			map[string]string{"CredentialsValid": "True CredentialsValid"},
			"valid until",
		},
		"a certificate that ends in 6 days": {
			findings{health: seen(VerdictReady), credentials: []credential{{name: "read certificate", validity: until(6 * day)}}},
			map[string]string{"CredentialsValid": "True CredentialsExpiring"},
			"renew it",
		},
		"a token that we renew in time": {
			findings{health: seen(VerdictReady), credentials: []credential{{name: "read token", validity: until(6 * day), rotated: true}}},
			map[string]string{"CredentialsValid": "True CredentialsValid"},
			"renewed before",
		},
		"a token that we failed to renew": {
			findings{health: seen(VerdictReady), credentials: []credential{{name: "read token", validity: until(1 * day), rotated: true, failure: "boom"}}},
			map[string]string{"CredentialsValid": "True CredentialsExpiring"},
			"boom",
		},
		"an expired token": {
			findings{health: seen(VerdictUnreachable), credentials: []credential{{name: "apply token", validity: until(-time.Second), rotated: true}}},
			map[string]string{"CredentialsValid": "False CredentialsExpired"},
			"apply token expired",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := conditionsOf(nil, tc.f, noon)
			for typ, want := range tc.want {
				have := ""
				if c := meta.FindStatusCondition(got, typ); c != nil {
					have = string(c.Status) + " " + c.Reason
				}
				if have != want {
					t.Errorf("%s = %q, want %q", typ, have, want)
				}
			}
			if c := meta.FindStatusCondition(got, "CredentialsValid"); tc.says != "" && !strings.Contains(c.Message, tc.says) {
				t.Errorf("message %q does not say %q", c.Message, tc.says)
			}
		})
	}
}

func TestConditionsKeepTheTimeOfTheirLastTurn(t *testing.T) {
	f := findings{health: Health{Known: true, Ready: true, Reason: "ClusterReady", Probed: true}}
	first := conditionsOf(nil, f, noon)
	second := conditionsOf(first, f, noon.Add(time.Hour))
	for _, c := range second {
		if !c.LastTransitionTime.Time.Equal(noon) {
			t.Errorf("%s turned at %s without turning", c.Type, c.LastTransitionTime)
		}
	}
	f.health.Ready, f.health.Reason = false, "ClusterNotReady"
	third := conditionsOf(second, f, noon.Add(2*time.Hour))
	if c := meta.FindStatusCondition(third, "Ready"); !c.LastTransitionTime.Time.Equal(noon.Add(2 * time.Hour)) {
		t.Errorf("Ready turned at %s", c.LastTransitionTime)
	}
	if c := meta.FindStatusCondition(first, "Ready"); c.Status != metav1.ConditionTrue {
		t.Error("the conditions before were changed in place")
	}
}

func jwt(claims string) string {
	enc := base64.RawURLEncoding.EncodeToString
	return enc([]byte(`{"alg":"none"}`)) + "." + enc([]byte(claims)) + "." + enc([]byte("sig"))
}

func jwtOf(from, to time.Time) string {
	return jwt(fmt.Sprintf(`{"iat":%d,"exp":%d}`, from.Unix(), to.Unix()))
}

func TestTokenValidity(t *testing.T) {
	to := noon.Add(10 * time.Hour)
	v := tokenValidity(jwtOf(noon, to))
	if !v.notBefore.Equal(noon) || !v.notAfter.Equal(to) {
		t.Errorf("validity = %+v", v)
	}
	if want := noon.Add(8 * time.Hour); !v.rotateAt().Equal(want) {
		t.Errorf("rotateAt = %s, want %s", v.rotateAt(), want)
	}
	for _, odd := range []string{"", "a.b", "a.b.c", jwt(`{}`), jwt(`{"exp":"soon"}`), jwt(`{"exp":-1}`), jwt(`{"exp":1e300}`), jwt(`null`)} {
		if v := tokenValidity(odd); !v.rotateAt().IsZero() {
			t.Errorf("%q has an end: %+v", odd, v)
		}
	}
}

func FuzzTokenValidity(f *testing.F) {
	f.Add(jwtOf(noon, noon.Add(time.Hour)))
	f.Add("a.b.c")
	f.Add(jwt(`{"iat":1e18,"exp":1e19}`))
	f.Fuzz(func(t *testing.T, token string) {
		v := tokenValidity(token)
		if at := v.rotateAt(); !at.IsZero() && (at.Before(v.notBefore) || at.After(v.notAfter)) {
			t.Errorf("rotateAt %s is outside %+v", at, v)
		}
	})
}

func FuzzExcerpt(f *testing.F) {
	f.Add([]byte("<html>\n\x1b[31mred\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s := excerpt(b)
		if len([]rune(s)) > 260 || strings.ContainsAny(s, "\x1b\x00\n\r") {
			t.Errorf("excerpt %q", s)
		}
	})
}
