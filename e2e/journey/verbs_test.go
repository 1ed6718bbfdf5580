package journey

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/isthmus-dev/isthmus/e2e/lab"
	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

// sharedVerb is a request about one of two Pods of equal names. PATH in it is
// the path of the Pod, NAME its name as served, UID its UID, NODE a Node of its
// cluster, CLUSTER its cluster, OBJECT the Pod as it is served.
type sharedVerb struct {
	what, method, path, body, contentType string
	// code is what the owner answers; 0 is any 2xx.
	code int
	says string // what the answer has in it
}

const podsPath = "COLLECTION"

func sharedVerbs() []sharedVerb {
	label := func(v string) string { return `{"metadata":{"labels":{"step":"` + v + `"}}}` }
	const (
		merge, jsonPatch = "application/merge-patch+json", "application/json-patch+json"
		strategic, apply = "application/strategic-merge-patch+json", "application/apply-patch+yaml"
	)
	return []sharedVerb{
		{what: "get", method: "GET", path: "PATH", says: "UID"},
		{what: "list", method: "GET", path: podsPath + "?fieldSelector=metadata.name%3DNAME", says: "UID"},
		{what: "watch", method: "GET", path: podsPath + "?watch=1&timeoutSeconds=1&resourceVersion=0&fieldSelector=metadata.name%3DNAME", says: "UID"},
		{what: "get status", method: "GET", path: "PATH/status", says: "UID"},
		{what: "merge patch", method: "PATCH", path: "PATH", body: label("merge"), contentType: merge, says: "UID"},
		{what: "strategic patch", method: "PATCH", path: "PATH", body: label("strategic"), contentType: strategic, says: "UID"},
		{what: "JSON patch", method: "PATCH", path: "PATH", body: `[{"op":"replace","path":"/metadata/labels/step","value":"json"}]`, contentType: jsonPatch, says: "UID"},
		{what: "apply", method: "PATCH", path: "PATH?fieldManager=test", body: `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"NAME","labels":{"applied":"yes"}}}`, contentType: apply, says: "UID"},
		{what: "update", method: "PUT", path: "PATH", body: "OBJECT", says: "UID"},
		{what: "update status", method: "PUT", path: "PATH/status", body: "OBJECT", says: "UID"},
		{what: "patch status", method: "PATCH", path: "PATH/status", body: `{"status":{"message":"as of NAME"}}`, contentType: merge, says: "UID"},
		{what: "ephemeral containers", method: "PATCH", path: "PATH/ephemeralcontainers", body: `{"spec":{"ephemeralContainers":[{"name":"look","image":"registry.example.com/look:1"}]}}`, contentType: strategic, says: "UID"},
		{what: "resize", method: "PATCH", path: "PATH/resize", body: `{"spec":{"containers":[{"name":"db","resources":{}}]}}`, contentType: strategic, code: http.StatusUnprocessableEntity, says: `Pod \"NAME\" is invalid: spec: Forbidden: Pod running on node without support for resize`},
		{what: "log", method: "GET", path: "PATH/log?tailLines=1", says: "CLUSTER"},
		{what: "bind", method: "POST", path: "PATH/binding", body: `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"NAME"},"target":{"kind":"Node","name":"NODE"}}`, code: http.StatusConflict, says: "already assigned"},
		{what: "exec without an upgrade", method: "POST", path: "PATH/exec?command=true&stdout=1", code: http.StatusBadRequest},
		{what: "attach without an upgrade", method: "POST", path: "PATH/attach?stdout=1", code: http.StatusBadRequest},
		{what: "port-forward without an upgrade", method: "POST", path: "PATH/portforward", code: http.StatusBadRequest},
		{what: "create over it", method: "POST", path: podsPath, body: `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"NAME"},"spec":{"containers":[{"name":"db","image":"registry.example.com/db:1"}]}}`, code: http.StatusConflict, says: "already exists"},
		{what: "delete with another UID", method: "DELETE", path: "PATH", body: `{"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"uid":"another"}}`, code: http.StatusConflict},
		{what: "evict, dry run", method: "POST", path: "PATH/eviction", body: `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"NAME"},"deleteOptions":{"dryRun":["All"]}}`},
		{what: "delete collection, dry run", method: "DELETE", path: podsPath + "?dryRun=All&fieldSelector=metadata.name%3DNAME", says: "UID"},
		{what: "delete, dry run", method: "DELETE", path: "PATH?dryRun=All", says: "UID"},
		{what: "evict", method: "POST", path: "PATH/eviction", body: `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"NAME"}}`, code: http.StatusCreated},
	}
}

// Every verb on a name that two clusters hold goes to its owner and is answered
// by it, for the bare name and for the other; none is "ambiguous".
func TestEveryVerbOnASharedName(t *testing.T) {
	t.Parallel()
	ns := labtest.NamespaceName(t)
	endpoint := world.System.Kubeconfig()
	labtest.MustKubectl(t, endpoint, "", "create", "namespace", ns)
	for _, member := range []*lab.Member{world.m1, world.m2} {
		labtest.MustKubectl(t, member.Kubeconfig(), strings.ReplaceAll(database, "NAME", ns), "apply", "-f", "-")
	}
	t.Cleanup(func() { removeNamespace(t, ns, endpoint, world.m1.Kubeconfig(), world.m2.Kubeconfig()) })
	waitServed(t, ns, "db-0")
	waitServed(t, ns, "db-0.m2")
	config := labtest.Config(t, world.System)
	for _, name := range []string{"db-0.m2", "db-0"} {
		owner, other := world.m1, world.m2
		if strings.HasSuffix(name, ".m2") {
			owner, other = other, owner
		}
		for _, v := range sharedVerbs() {
			s := &sharedName{t: t, config: config, ns: ns, name: name, owner: owner, other: other}
			s.check(v)
		}
	}
}

type sharedName struct {
	t            *testing.T
	config       *rest.Config
	ns, name     string
	owner, other *lab.Member
}

func (s *sharedName) uid(m *lab.Member) types.UID {
	pod, err := labtest.Client(s.t, m).CoreV1().Pods(s.ns).Get(s.t.Context(), "db-0", metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return pod.UID
}

func (s *sharedName) send(method, path, body, contentType string) (int, string) {
	if contentType == "" {
		contentType = "application/json"
	}
	a, err := labtest.Request(s.t.Context(), s.config, method, path, []byte(body), "Content-Type", contentType)
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, path, err)
	}
	return a.Code, string(a.Body)
}

func (s *sharedName) check(v sharedVerb) {
	t := s.t
	uid, foreign := s.uid(s.owner), s.uid(s.other)
	collection := "/api/v1/namespaces/" + s.ns + "/pods"
	fill := strings.NewReplacer("PATH", collection+"/"+s.name, podsPath, collection, "NAME", s.name, "NODE", "fake-0"+strings.TrimPrefix(s.name, "db-0"), "UID", string(uid), "CLUSTER", s.owner.Name())
	body := fill.Replace(v.body)
	if v.body == "OBJECT" {
		_, body = s.send("GET", collection+"/"+s.name, "", "")
		var o map[string]any
		if err := json.Unmarshal([]byte(body), &o); err != nil {
			t.Fatalf("%s: %v in %s", v.what, err, body)
		}
	}
	code, said := s.send(v.method, fill.Replace(v.path), body, v.contentType)
	report := fmt.Sprintf("%s %s: %d %.300s", v.what, s.name, code, said)
	if v.code != 0 && code != v.code || v.code == 0 && code/100 != 2 {
		t.Errorf("%s; want %d", report, v.code)
	}
	if want := fill.Replace(v.says); !strings.Contains(said, want) {
		t.Errorf("%s; without %q", report, want)
	}
	if strings.Contains(said, string(foreign)) || strings.Contains(strings.ToLower(said), "ambiguous") {
		t.Errorf("%s; it speaks of the Pod of %s", report, s.other.Name())
	}
	if now := s.uid(s.other); now != foreign {
		t.Errorf("%s; the Pod of %s was replaced", report, s.other.Name())
	}
	if v.what == "evict" {
		labtest.Eventually(t, 40*time.Second, func(ctx context.Context) error {
			pod, err := labtest.Client(t, s.owner).CoreV1().Pods(s.ns).Get(ctx, "db-0", metav1.GetOptions{})
			if err == nil && pod.UID == uid {
				err = fmt.Errorf("%s is still there", uid)
			}
			return err
		})
	}
}
