package security

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

// secrets are what nobody may read anywhere, by what they are.
func secrets(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	list, err := endpoint(t).CoreV1().Secrets("isthmus-system").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list.Items {
		if token := s.Data["token"]; len(token) > 0 {
			out["the token in Secret "+s.Name] = string(token)
		}
	}
	if len(out) < 4 {
		t.Fatalf("only %d credentials of two members", len(out))
	}
	world.issuer.mu.Lock()
	for n, token := range world.issuer.issued {
		out[fmt.Sprintf("OpenID Connect token %d", n)] = token
	}
	world.issuer.mu.Unlock()
	world.reviewer.mu.Lock()
	for token := range world.reviewer.users {
		out["the webhook's token "+token] = token
	}
	world.reviewer.mu.Unlock()
	request, err := endpoint(t).CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	out["a service account's token"] = request.Status.Token
	if _, err := whoami(t.Context(), clientOf(t, withToken(t, request.Status.Token))); err != nil {
		t.Error(err)
	}
	err = filepath.WalkDir(filepath.Join(world.System.DataDir(), "pki"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".key") {
			return err
		}
		data, err := os.ReadFile(path)
		if lines := strings.Split(string(data), "\n"); len(lines) > 2 {
			out["the key "+entry.Name()] = lines[1]
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// signed is the part of a token without which it is worth nothing: the claims
// may be named.
func signed(token string) string {
	if parts := strings.Split(token, "."); len(parts) == 3 {
		return parts[2]
	}
	return token
}

// withoutReviews leaves out what kube-apiserver's own client of the webhook prints
// from level 8 on: the TokenReview that it sends.
func withoutReviews(log []byte) []byte {
	var out []byte
	for line := range bytes.Lines(log) {
		if !bytes.HasPrefix(line, []byte("\t{\"kind\":\"TokenReview\",")) {
			out = append(out, line...)
		}
	}
	return out
}

// After all that the tests before have done, at the highest log level: no
// credential stands in a log, an audit event, a page or an object that is not
// its Secret. (The file is the last of the package.)
func TestNoCredentialLeavesATrace(t *testing.T) {
	all := secrets(t)
	places := map[string][]byte{}
	for name, path := range map[string]string{
		"the endpoint's log": world.System.LogPath("multicluster-apiserver"),
		"the audit log":      auditPath(),
		"the audit of m1":    world.Member("m1").AuditLog(),
		"the audit of m2":    world.Member("m2").AuditLog(),
	} {
		data, err := os.ReadFile(path)
		if err != nil || len(data) < 1<<10 {
			t.Fatalf("%s: %d bytes, %v", name, len(data), err)
		}
		places[name] = data
	}
	places["the endpoint's log"] = withoutReviews(places["the endpoint's log"])
	config := labtest.Config(t, world.System)
	for _, path := range []string{
		"/metrics", "/configz", "/flagz", "/statusz", "/debug/pprof/cmdline", "/debug/pprof/goroutine?debug=2", "/readyz?verbose",
		"/apis/cluster.karmada.io/v1alpha1/clusters", "/api/v1/events", "/api/v1/configmaps", "/apis/work.karmada.io/v1alpha2/resourcebindings",
	} {
		a, err := send(t.Context(), t, config, http.MethodGet, path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		places[path] = []byte(a.body)
	}
	for where, data := range places {
		for what, secret := range all {
			encoded := base64.StdEncoding.EncodeToString([]byte(secret))
			// The end of a text is encoded according to what follows.
			for form, text := range map[string]string{"": signed(secret), " in base64": encoded[len(encoded)/2 : len(encoded)-4]} {
				if at := bytes.Index(data, []byte(text)); at >= 0 {
					begin := bytes.LastIndexByte(data[:at], '\n') + 1
					t.Errorf("%s%s stands in %s: %.300s", what, form, where, data[begin:])
				}
			}
		}
	}
}
