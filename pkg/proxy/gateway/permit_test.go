package gateway

import (
	"bufio"
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

// twoMembers has m1 and m2; others join when a test says so.
type twoMembers struct{ names []cache.ClusterName }

func (m *twoMembers) Get(name cache.ClusterName) (Member, bool) {
	return Member{Name: name}, slices.Contains(m.names, name)
}

func (m *twoMembers) List() []Member {
	var out []Member
	for _, n := range m.names {
		out = append(out, Member{Name: n})
	}
	return out
}

// grants are "VERB CLUSTER" that are allowed.
type grants map[string]bool

func (g grants) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetAPIGroup() == "cluster.karmada.io" && a.GetResource() == "clusters" && a.GetSubresource() == "access" &&
		a.GetUser().GetName() == "alice" && a.GetNamespace() == "" && g[a.GetVerb()+" "+a.GetName()] {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func limitedEndpoint(t *testing.T, g grants) (*endpoint, *twoMembers) {
	t.Helper()
	members := &twoMembers{names: []cache.ClusterName{cache.ControlPlane, "m1", "m2"}}
	e := newEndpoint(t, func(o *Options) { o.Members, o.Authorizer = members, authorizer.AuthorizerFunc(g.Authorize) })
	e.putPods(t, "m1", "d", 1)
	e.putPods(t, "m2", "d", 1)
	return e, members
}

// TestClusterPermission: reads need the permission for every cluster that they
// are about, and say which selector would do.
func TestClusterPermission(t *testing.T) {
	e, _ := limitedEndpoint(t, grants{"get m1": true, "list m1": true, "watch m1": true, "get m2": false})
	const pods = "/api/v1/namespaces/d/pods"
	for _, tt := range []struct {
		path string
		code int
		says string
	}{
		{pods + "/m1-000", http.StatusOK, ""},
		{pods + "/m2-000", http.StatusForbidden, `not permitted in cluster \"m2\"`},
		{pods + "/none", http.StatusNotFound, ""},
		{pods, http.StatusForbidden, "isthmus.dev/cluster in (m1)"},
		{pods + "?limit=1", http.StatusForbidden, "isthmus.dev/cluster in (m1)"},
		{pods + "?watch=true", http.StatusForbidden, "isthmus.dev/cluster in (m1)"},
		{pods + "?fieldSelector=metadata.name%3Dm2-000", http.StatusForbidden, "not in m2"},
		{pods + "?labelSelector=isthmus.dev/cluster%3Dm1", http.StatusOK, ""},
		{pods + "?labelSelector=isthmus.dev/cluster!%3Dm2", http.StatusOK, ""},
		{pods + "?labelSelector=isthmus.dev/cluster%3Dm2", http.StatusForbidden, "not in m2"},
		{pods + "?labelSelector=isthmus.dev/cluster%3Dm1&watch=true&timeoutSeconds=1", http.StatusOK, ""},
	} {
		resp, body := e.fetch(t, tt.path, "application/json")
		if resp.StatusCode != tt.code || !strings.Contains(string(body), tt.says) {
			t.Errorf("%s: %d %s, want %d and %q", tt.path, resp.StatusCode, body, tt.code, tt.says)
		}
		if tt.code == http.StatusForbidden && strings.Contains(string(body), `"containers"`) {
			t.Errorf("%s: a refusal holds objects", tt.path)
		}
	}
}

// TestVerbsOfAPermission: who may read in a cluster may not write there.
func TestVerbsOfAPermission(t *testing.T) {
	e, _ := limitedEndpoint(t, grants{"get m1": true, "get m2": true, "list m1": true, "list m2": true, "delete m1": true})
	for path, want := range map[string]int{"/m2-000": http.StatusForbidden, "": http.StatusForbidden} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, e.URL+"/api/v1/namespaces/d/pods"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("DELETE %q: %d, want %d", path, resp.StatusCode, want)
		}
	}
}

// TestWatchOfAClusterThatJoins: a watch ends rather than show objects of a
// cluster that joined later and that the user has no permission for.
func TestWatchOfAClusterThatJoins(t *testing.T) {
	e, members := limitedEndpoint(t, grants{"watch m1": true, "watch m2": true})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, e.URL+"/api/v1/namespaces/d/pods?watch=true&resourceVersion="+formatRV(e.pods.rv), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	members.names = append(members.names, "m3")
	e.putPods(t, "m3", "d", 1)
	events := bufio.NewScanner(resp.Body)
	var lines []string
	for events.Scan() {
		lines = append(lines, events.Text())
	}
	if len(lines) != 1 || !strings.Contains(lines[0], `"type":"ERROR"`) || !strings.Contains(lines[0], string(metav1.StatusReasonForbidden)) {
		t.Errorf("the watch brought %q", lines)
	}
}
