package gateway

import "testing"

func TestWantOf(t *testing.T) {
	for message, c := range map[string]struct {
		want Want
		ok   bool
	}{
		`pods "x" is forbidden: exceeded quota: q, requested: pods=1,requests.cpu=500m, used: pods=3,requests.cpu=0, limited: pods=3,requests.cpu=333m`: {Want{Quota: "q", Resources: "pods=1,requests.cpu=500m"}, true},
		`pods "x" is forbidden: status unknown for quota: q, resources: pods`:                                                                           {Want{Quota: "q"}, true},
		`pods "x" is forbidden: failed quota: q: must specify cpu`:                                                                                      {Want{}, false},
		`exceeded quota: q`: {Want{Quota: "q"}, false},
		`pods "x" is forbidden: error looking up service account`: {Want{}, false},
	} {
		want, ok := wantOf(message)
		if ok != c.ok || ok && want != c.want {
			t.Errorf("%s: %v, %v", message, want, ok)
		}
	}
}
