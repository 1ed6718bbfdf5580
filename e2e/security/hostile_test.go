package security

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

const (
	// neighbourLimit is what a request on another member may take meanwhile.
	neighbourLimit = 8 * time.Second
	// growthLimit is what the endpoint may have grown by since the beginning.
	growthLimit = 700 << 20
)

// resident is the memory of the endpoint's process.
func resident(t *testing.T) int {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", world.System.PID("multicluster-apiserver")))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "VmRSS:" {
			kib, err := strconv.Atoi(fields[1])
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Fatal("no VmRSS")
	return 0
}

// unharmed looks at the endpoint when a member has misbehaved: the same process,
// ready, not grown, quick with the other member, and nobody was led astray.
type unharmed struct {
	pid, resident int
	ns            string
}

func watchEndpoint(t *testing.T, ns string) unharmed {
	t.Helper()
	return unharmed{world.System.PID("multicluster-apiserver"), resident(t), ns}
}

func (u unharmed) check(t *testing.T) {
	t.Helper()
	if pid := world.System.PID("multicluster-apiserver"); pid != u.pid || pid == 0 {
		t.Fatalf("the endpoint was process %d and is %d", u.pid, pid)
	}
	if now := resident(t); now > u.resident+growthLimit {
		t.Errorf("the endpoint has grown from %d to %d MiB", u.resident>>20, now>>20)
	}
	if n := world.impostor.visited.Load(); n != 0 {
		t.Errorf("%d requests followed a redirect out of the member", n)
	}
	u.neighbour(t)
}

// neighbour does with the other member what clients do.
func (u unharmed) neighbour(t *testing.T) {
	t.Helper()
	config := labtest.Config(t, world.System)
	pods := "/api/v1/namespaces/" + u.ns + "/pods"
	for _, c := range []struct{ method, path, body, mediaType string }{
		{http.MethodGet, "/readyz", "", ""},
		{http.MethodGet, pods, "", ""},
		{http.MethodGet, pods + "/m1-web/log?tailLines=1", "", ""},
		{http.MethodPatch, pods + "/m1-web", `{"metadata":{"annotations":{"at":"` + time.Now().String() + `"}}}`, "application/merge-patch+json"},
	} {
		a, err := send(t.Context(), t, config, c.method, c.path, strings.NewReader(c.body), "Content-Type", c.mediaType)
		if err != nil || a.code != http.StatusOK || a.took > neighbourLimit {
			t.Errorf("%s %s: %d after %s: %.300s (%v)", c.method, c.path, a.code, a.took.Round(time.Millisecond), a.body, err)
		}
	}
}

// hostilePods makes a Pod in each member.
func hostilePods(t *testing.T) string {
	t.Helper()
	ns := labtest.Namespace(t, world.System.Kubeconfig())
	runIn(t, ns, "m1-web", "m1")
	runIn(t, ns, "m2-web", "m2")
	return ns
}

// recovered waits until the member that misbehaved is used again.
func recovered(t *testing.T, ns string) {
	t.Helper()
	world.impostor.behave()
	config := labtest.Config(t, world.System)
	labtest.Eventually(t, 90*time.Second, func(ctx context.Context) error {
		a, err := send(ctx, t, config, http.MethodPatch, "/api/v1/namespaces/"+ns+"/pods/m2-web", strings.NewReader(`{"metadata":{"annotations":{"back":"yes"}}}`), "Content-Type", "application/merge-patch+json")
		if err == nil && a.code != http.StatusOK {
			err = fmt.Errorf("%d %.300s", a.code, a.body)
		}
		return err
	})
}

// What a member answers to a request that was routed to it ends as an error of
// that request, in time, whatever it is.
func TestHostileAnswers(t *testing.T) {
	ns := hostilePods(t)
	u, i := watchEndpoint(t, ns), world.impostor
	const answerHead = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
	object := `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"m2-web","namespace":"` + ns + `","uid":"u","resourceVersion":"1"}}`
	for name, act := range map[string]http.HandlerFunc{
		"redirects":                        i.redirect(http.StatusFound),
		"redirects for good":               i.redirect(http.StatusPermanentRedirect),
		"refuses our credentials":          func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) },
		"switches protocols unasked":       i.bytes("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"),
		"answers garbage":                  i.bytes("\x00\x01\x02 no HTTP at all\r\n\r\n"),
		"answers with endless headers":     i.heads(),
		"answers with a header of 2 MiB":   i.bytes(answerHead + "X-Large: " + strings.Repeat("x", 2<<20) + "\r\nContent-Length: 2\r\n\r\n{}"),
		"breaks off":                       i.bytes(answerHead + "Content-Length: 1000\r\n\r\n{"),
		"hangs up":                         i.bytes(""),
		"answers in a smuggled pair":       i.bytes(answerHead + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"),
		"answers with two lengths":         i.bytes(answerHead + "Content-Length: 2\r\nContent-Length: 200\r\n\r\n{}"),
		"answers interim for ever":         i.raw(interimForEver),
		"answers another name":             i.bytes(answerHead + "Content-Length: " + strconv.Itoa(len(object)) + "\r\n\r\n" + strings.Replace(object, "m2-web", "m1-web", 1)),
		"answers a page":                   html,
		"answers an endless page":          i.endlessly("text/html", "<html>", "x"),
		"answers an endless object":        i.endlessly("application/json", `{"kind":"Pod","apiVersion":"v1","metadata":{"annotations":{"a":"`, "x"),
		"answers nested without an end":    i.endlessly("application/json", `{"kind":"Pod","apiVersion":"v1","spec":`, `{"a":`),
		"answers endless binary":           i.endlessly("application/vnd.kubernetes.protobuf", "k8s\x00", "\x0a\xff\xff\xff\x7f"),
		"answers in nested lists":          i.endlessly("application/json", "", "["),
		"answers with nothing":             func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
		"answers an unknown code":          i.bytes("HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n"),
		"says that it did what it was not": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) },
	} {
		t.Run(name, func(t *testing.T) {
			i.misbehave("/pods/m2-web", act)
			defer i.behave()
			for _, method := range []string{http.MethodPatch, http.MethodDelete} {
				refusedBy(t, u.ns, method)
			}
			if i.count() == 0 {
				t.Error("the member was not asked")
			}
			u.check(t)
		})
	}
	recovered(t, ns)
}

// refusedBy sends a write to the Pod of the hostile member.
func refusedBy(t *testing.T, ns, method string) {
	t.Helper()
	started := time.Now()
	body := `{"metadata":{"annotations":{"a":"b"}}}`
	if method == http.MethodDelete {
		body = `{"kind":"DeleteOptions","apiVersion":"v1"}`
	}
	mediaType := map[string]string{http.MethodPatch: "application/merge-patch+json", http.MethodDelete: "application/json"}[method]
	a, err := send(t.Context(), t, labtest.Config(t, world.System), method, "/api/v1/namespaces/"+ns+"/pods/m2-web?timeout=20s", strings.NewReader(body), "Content-Type", mediaType)
	if err != nil {
		t.Errorf("%s: %v after %s: a client must get an answer", method, err, time.Since(started))
		return
	}
	if a.code < 500 || a.took > 25*time.Second || !strings.Contains(a.body, `"kind":"Status"`) || a.header.Get("Location") != "" {
		t.Errorf("%s: %d after %s with %v: %.300s", method, a.code, a.took, a.header, a.body)
	}
}

// Streams of a hostile member end, or run for who asked alone.
func TestHostileStreams(t *testing.T) {
	ns := hostilePods(t)
	u, i := watchEndpoint(t, ns), world.impostor
	for name, c := range map[string]struct {
		act    http.HandlerFunc
		listed bool // the client sees what the member sent
	}{
		"redirects":                  {act: i.redirect(http.StatusFound)},
		"refuses our credentials":    {act: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }},
		"switches protocols unasked": {act: i.bytes("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nHTTP/1.1 200 OK\r\n\r\n")},
		"answers garbage":            {act: i.bytes("\x00\x01\x02 no HTTP at all\r\n\r\n")},
		"has endless headers":        {act: i.heads()},
		"writes without an end":      {act: i.endlessly("text/plain", "", "x\n"), listed: true},
		"forges headers": {listed: true, act: func(w http.ResponseWriter, _ *http.Request) {
			for _, key := range []string{"X-Isthmus-Cluster", "Audit-Id", "Access-Control-Allow-Origin", "Impersonate-User", "X-Remote-User"} {
				w.Header().Set(key, "forged")
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			i.misbehave("/pods/m2-web/", c.act)
			defer i.behave()
			config := labtest.Config(t, world.System)
			a, err := send(t.Context(), t, config, http.MethodGet, "/api/v1/namespaces/"+ns+"/pods/m2-web/log?follow=true", http.NoBody)
			if c.listed != (err == nil && a.code == http.StatusOK) || !c.listed && a.code < 500 {
				t.Errorf("log: %d %.300s (%v)", a.code, a.body, err)
			}
			for key, values := range a.header {
				if strings.Contains(strings.Join(values, ","), "forged") || key == "Location" {
					t.Errorf("the member's %s has passed: %q", key, values)
				}
			}
			for protocol, do := range verbs(endpoint(t), config) {
				if !strings.HasPrefix(protocol, "exec") {
					continue
				}
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				if err := do(ctx, ns, "m2-web"); err == nil || ctx.Err() != nil || strings.Contains(err.Error(), "Unauthorized") {
					t.Errorf("%s: %v", protocol, err)
				}
				cancel()
			}
			if i.count() < 2 {
				t.Errorf("the member was asked %d times", i.count())
			}
			u.check(t)
		})
	}
	recovered(t, ns)
}

// What a hostile member lists and watches neither reaches clients nor takes
// anything away from them.
func TestHostileLists(t *testing.T) {
	ns := hostilePods(t)
	u, i := watchEndpoint(t, ns), world.impostor
	pod := func(metadata string) string {
		return `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[{"metadata":{` + metadata + `}}]}`
	}
	json := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(text))
		}
	}
	for name, act := range map[string]http.HandlerFunc{
		"a page":                        html,
		"a redirect":                    i.redirect(http.StatusFound),
		"endless nesting":               i.endlessly("application/json", `{"kind":"PodList","items":[{"spec":`, `{"a":`),
		"an endless page":               i.endlessly("text/html", "", "x"),
		"an endless string":             i.endlessly("application/json", `{"kind":"PodList","items":[{"metadata":{"name":"`, "x"),
		"endless objects":               i.endlessly("application/json", `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[`, `{"metadata":{"name":"a","namespace":"b","uid":"c","resourceVersion":"1"}},`),
		"endless binary":                i.endlessly("application/vnd.kubernetes.protobuf", "k8s\x00", "\x0a\xff\xff\xff\x7f"),
		"endless lengths":               i.endlessly("application/vnd.kubernetes.protobuf;stream=watch", "", "\xff\xff\xff\xff"),
		"an object without a name":      json(pod(`"namespace":"` + ns + `","uid":"u","resourceVersion":"5"`)),
		"an object with dots in it":     json(pod(`"name":"../../x","namespace":"..","uid":"u","resourceVersion":"5"`)),
		"an object of the other member": json(pod(`"name":"m1-web","namespace":"` + ns + `","uid":"u","resourceVersion":"5","labels":{"isthmus.dev/cluster":"m1"}`)),
		"an impossible version":         json(pod(`"name":"x","namespace":"` + ns + `","uid":"u","resourceVersion":"minus one"`)),
		"the wrong kind":                json(`{"kind":"SecretList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"s","namespace":"` + ns + `"}}]}`),
		"null":                          json("null"),
		"silence":                       i.silently,
		"a byte a second":               i.slowly("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n {}"),
	} {
		t.Run(name, func(t *testing.T) {
			live, err := endpoint(t).CoreV1().Pods(ns).Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=m1-web"})
			if err != nil {
				t.Fatal(err)
			}
			defer live.Stop()
			i.misbehave("/api/v1/pods", act)
			defer i.behave()
			i.server.CloseClientConnections() // the watches, so that it is asked again
			labtest.Eventually(t, 40*time.Second, func(context.Context) error {
				if i.count() == 0 {
					return failed("the member is not asked for its Pods")
				}
				return nil
			})
			time.Sleep(1500 * time.Millisecond) // for what it sends to arrive
			u.check(t)
			onlyTruth(t, ns)
			select {
			case event, open := <-live.ResultChan():
				if !open {
					t.Error("the watch of a client was ended")
				} else if p, ok := event.Object.(*corev1.Pod); !ok || p.Labels["isthmus.dev/cluster"] != "m1" {
					t.Errorf("a watch of m1-web saw %s %v", event.Type, event.Object)
				}
			default:
				t.Error("the watch did not see the changes of its Pod")
			}
		})
	}
	recovered(t, ns)
}

// onlyTruth expects the Pods that exist, each with its own cluster. One of the
// hostile member may be gone or changed: it is that member's to say.
func onlyTruth(t *testing.T, ns string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	list, err := endpoint(t).CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Errorf("list: %v", err)
		return
	}
	found := false
	for _, p := range list.Items {
		owner := p.Labels["isthmus.dev/cluster"]
		if strings.ContainsAny(p.Name+p.Namespace, "/\\\x00") || p.Name == "" || owner == "" {
			t.Errorf("listed %q in %q of %q", p.Name, p.Namespace, owner)
		}
		if p.Namespace == ns && p.Name == "m1-web" {
			found = true
			if owner != "m1" || p.Spec.NodeName == "" {
				t.Errorf("m1-web is now that of %q", owner)
			}
		}
	}
	if !found {
		t.Error("m1-web is not listed")
	}
}

// A hostile member cannot hold up what is propagated, nor what else the endpoint
// asks of it by itself.
func TestHostileControl(t *testing.T) {
	ns := hostilePods(t)
	u, i := watchEndpoint(t, ns), world.impostor
	for name, c := range map[string]struct {
		path string
		act  http.HandlerFunc
	}{
		"endless answers to applies":  {"/configmaps/", i.endlessly("application/json", `{"kind":"ConfigMap","metadata":{"name":"`, "x")},
		"redirected applies":          {"/configmaps/", i.redirect(http.StatusTemporaryRedirect)},
		"silence to applies":          {"/configmaps/", i.silently},
		"pages as answers to applies": {"/configmaps/", html},
		"nothing but endless answers": {"/", i.endlessly("application/json", `{"a":"`, "x")},
		"nothing but silence":         {"/", i.silently},
		"nothing but redirects":       {"/", i.redirect(http.StatusMovedPermanently)},
		"endless OpenAPI":             {"/openapi", i.endlessly("application/json", `{"a":"`, "x")},
		"endless discovery":           {"/apis", i.endlessly("application/json", `{"groups":[`, `{"name":"a"},`)},
	} {
		t.Run(name, func(t *testing.T) {
			i.misbehave(c.path, c.act)
			defer i.behave()
			i.server.CloseClientConnections()
			name := labtest.UniqueName(t, "settings")
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			if _, err := endpoint(t).CoreV1().ConfigMaps(ns).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
				t.Errorf("create: %v", err)
			}
			m1 := labtest.Client(t, world.Member("m1"))
			labtest.Eventually(t, 20*time.Second, func(ctx context.Context) error {
				_, err := m1.CoreV1().ConfigMaps(ns).Get(ctx, name, metav1.GetOptions{})
				return err
			})
			time.Sleep(1500 * time.Millisecond)
			u.check(t)
		})
	}
	recovered(t, ns)
}

// A Cluster object leads to no place of its author's choice with what is secret:
// neither other Secrets, nor other schemes, nor through a redirect.
func TestClusterObjectsLeadNowhere(t *testing.T) {
	admin := world.System.Kubeconfig()
	for name, spec := range map[string]string{
		"plain HTTP":           `{apiEndpoint: "http://169.254.169.254/", secretRef: {namespace: isthmus-system, name: m1}}`,
		"a file":               `{apiEndpoint: "file:///etc/passwd", secretRef: {namespace: isthmus-system, name: m1}}`,
		"a Secret elsewhere":   `{apiEndpoint: "https://127.0.0.1:1", secretRef: {namespace: default, name: s}}`,
		"an impersonator":      `{apiEndpoint: "https://127.0.0.1:1", impersonatorSecretRef: {namespace: kube-system, name: s}}`,
		"another's credential": `{apiEndpoint: "` + world.impostor.server.URL + `", insecureSkipTLSVerification: true, secretRef: {namespace: isthmus-system, name: m1}}`,
	} {
		t.Run(name, func(t *testing.T) {
			cluster := labtest.UniqueName(t, "elsewhere")
			manifest := "apiVersion: cluster.karmada.io/v1alpha1\nkind: Cluster\nmetadata: {name: " + cluster + "}\nspec: " + strings.Replace(spec, "{", "{syncMode: Push, ", 1) + "\n"
			before := len(world.impostor.requests("/"))
			token := credentialOf(t, "m1")
			res := labtest.Kubectl(t, admin, manifest, "apply", "-f", "-")
			if res.Code != 0 {
				return // refused at once
			}
			t.Cleanup(func() { labtest.Kubectl(t, admin, "", "delete", "cluster", cluster, "--wait=false") })
			labtest.Eventually(t, 30*time.Second, func(context.Context) error {
				res := labtest.Kubectl(t, admin, "", "get", "cluster", cluster, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].reason}`)
				if res.Out != "InvalidCredentials" {
					return errorOf(res)
				}
				return nil
			})
			for _, r := range world.impostor.requests("/")[before:] {
				if strings.Contains(r.Header.Get("Authorization"), token) {
					t.Errorf("the token of m1 was sent to another place: %s %s", r.Method, r.URL.Path)
				}
			}
		})
	}
}

// credentialOf is the token of a member.
func credentialOf(t testing.TB, name string) string {
	t.Helper()
	secret, err := endpoint(t).CoreV1().Secrets("isthmus-system").Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return string(secret.Data["token"])
}
