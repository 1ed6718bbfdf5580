package member

import (
	"errors"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/authentication/user"
)

func TestCleanHeaders(t *testing.T) {
	for name, tc := range map[string]struct{ in, want http.Header }{
		"ordinary headers travel": {
			in:   http.Header{"Accept": {"application/json"}, "User-Agent": {"kubectl/v1"}, "X-Stream-Protocol-Version": {"v4.channel.k8s.io", "v3.channel.k8s.io"}},
			want: http.Header{"Accept": {"application/json"}, "User-Agent": {"kubectl/v1"}, "X-Stream-Protocol-Version": {"v4.channel.k8s.io", "v3.channel.k8s.io"}},
		},
		"identity stays here": {
			in: http.Header{
				"Authorization": {"Bearer secret"}, "Cookie": {"a=b"}, "Impersonate-User": {"root"}, "Impersonate-Extra-Scopes": {"x"},
				"Impersonate-Uid": {"1"}, "X-Remote-User": {"root"}, "X-Remote-Extra-A": {"b"}, "X-Forwarded-For": {"1.1.1.1"}, "Audit-Id": {"x"},
			},
			want: http.Header{},
		},
		"whatever the spelling": {
			in:   http.Header{"impersonate-user": {"root"}, "X_Remote_User": {"root"}, "IMPERSONATE_GROUP": {"system:masters"}, "authorization": {"x"}},
			want: http.Header{},
		},
		"named in Connection": {
			in:   http.Header{"Connection": {"keep-alive, X-Custom", "Impersonate-User"}, "X-Custom": {"1"}, "Keep-Alive": {"5"}, "Accept": {"*/*"}},
			want: http.Header{"Accept": {"*/*"}},
		},
		"nothing that makes a client repeat": {
			in:   http.Header{"Idempotency-Key": {"1"}, "X-Idempotency-Key": {"1"}, "Expect": {"100-continue"}, "Upgrade": {"h2c"}, "Te": {"trailers"}},
			want: http.Header{},
		},
		"token among the subprotocols": {
			in:   http.Header{"Sec-Websocket-Protocol": {"v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.c2VjcmV0", "base64url.bearer.authorization.k8s.io.YQ"}},
			want: http.Header{"Sec-Websocket-Protocol": {"v5.channel.k8s.io"}},
		},
		"only a token": {
			in:   http.Header{"Sec-Websocket-Protocol": {"base64url.bearer.authorization.k8s.io.c2VjcmV0"}},
			want: http.Header{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := tc.in.Clone()
			if diff := cmp.Diff(tc.want, CleanHeaders(tc.in)); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(before, tc.in); diff != "" {
				t.Errorf("the client's headers were changed: %s", diff)
			}
		})
	}
	if got := CleanHeaders(nil); got == nil {
		t.Error("a nil header cannot be written to")
	}
}

func FuzzCleanHeaders(f *testing.F) {
	f.Add("Connection", "Impersonate-User", "impersonate-user")
	f.Add("X-A", "b", "X_REMOTE_GROUP")
	f.Fuzz(func(t *testing.T, key, value, second string) {
		out := CleanHeaders(http.Header{key: {value}, second: {value}, "Connection": {second}})
		for k := range out {
			if isIdentity(k) {
				t.Errorf("%q passed", k)
			}
		}
		if len(out.Values("Connection")) > 0 {
			t.Error("Connection passed")
		}
	})
}

func TestImpersonate(t *testing.T) {
	h := http.Header{}
	err := Impersonate(h, &user.DefaultInfo{
		Name: "alice", UID: "7", Groups: []string{"oidc:team/a b", "system:authenticated"},
		Extra: map[string][]string{"example.com/Scopes%": {"a", "b"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := http.Header{
		"Impersonate-User": {"alice"}, "Impersonate-Uid": {"7"},
		"Impersonate-Group": {"oidc:team/a b", "system:authenticated"},
	}
	want[http.CanonicalHeaderKey("Impersonate-Extra-example.com%2F%53copes%25")] = []string{"a", "b"}
	if diff := cmp.Diff(want, h); diff != "" {
		t.Error(diff)
	}
	for _, u := range []user.Info{nil, &user.DefaultInfo{Groups: []string{"system:masters"}}} {
		if err := Impersonate(http.Header{}, u); !errors.Is(err, ErrNoUser) {
			t.Errorf("user %v: %v", u, err)
		}
	}
}
