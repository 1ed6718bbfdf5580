package chain

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

const clusterLabel = "isthmus.dev/cluster"

func limited(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d)
}

// answer of one HTTP request.
type answer struct {
	code   int
	header http.Header
	body   []byte
}

func (a answer) String() string { return fmt.Sprintf("%d %.300s", a.code, a.body) }

// status is the answer read as a Status.
func (a answer) status(t testing.TB) metav1.Status {
	t.Helper()
	var s metav1.Status
	if err := json.Unmarshal(a.body, &s); err != nil || s.Kind != "Status" {
		t.Fatalf("no Status: %s (%v)", a, err)
	}
	return s
}

// ask sends one request as it stands.
func ask(t testing.TB, config *rest.Config, method, path string, body []byte, header ...string) answer {
	t.Helper()
	a, err := tryAsk(t.Context(), config, method, path, body, header...)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return a
}

func tryAsk(ctx context.Context, config *rest.Config, method, path string, body []byte, header ...string) (answer, error) {
	a, err := labtest.Request(ctx, config, method, path, body, header...)
	return answer{a.Code, a.Header, a.Body}, err
}

func endpoint(t testing.TB) kubernetes.Interface { return labtest.Client(t, world.System) }

func namespace(t testing.TB) string { return labtest.Namespace(t, world.System.Kubeconfig()) }

// pod is a Pod that kwok runs.
func pod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "registry.example.com/web:1"}}},
	}
}

// inCluster puts a Pod into a cluster.
func inCluster(p *corev1.Pod, cluster string) *corev1.Pod {
	metav1.SetMetaDataLabel(&p.ObjectMeta, clusterLabel, cluster)
	return p
}

// running creates a Pod through the endpoint and waits until it is ready.
func running(t testing.TB, ns string, p *corev1.Pod) *corev1.Pod {
	t.Helper()
	pods := endpoint(t).CoreV1().Pods(ns)
	p, err := pods.Create(t.Context(), p, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	labtest.Eventually(t, 30*time.Second, func(ctx context.Context) error {
		if p, err = pods.Get(ctx, p.Name, metav1.GetOptions{}); err != nil {
			return err
		}
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("%s is %s", p.Name, p.Status.Phase)
	})
	return p
}

func podPath(ns, name string) string {
	return strings.TrimSuffix("/api/v1/namespaces/"+ns+"/pods/"+name, "/")
}

func encoded(t testing.TB, object any) []byte {
	t.Helper()
	data, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

const (
	contentType = "Content-Type"
	jsonType    = "application/json"
	mergeType   = "application/merge-patch+json"
)

// created is a Pod's manifest as JSON, with apiVersion and kind.
func manifest(t testing.TB, p *corev1.Pod) []byte {
	t.Helper()
	p = p.DeepCopy()
	p.APIVersion, p.Kind = "v1", "Pod"
	return encoded(t, p)
}

// A body over 3 MiB is refused for every verb that has one, and changes nothing.
func TestBodyLimit(t *testing.T) {
	t.Parallel()
	ns, config := namespace(t), labtest.Config(t, world.System)
	p := running(t, ns, pod("web"))
	big := strings.Repeat("x", 3<<20+1)
	fat := pod("fat")
	fat.Annotations = map[string]string{"big": big}
	fatter := p.DeepCopy()
	fatter.Annotations = map[string]string{"big": big}
	patch := encoded(t, map[string]any{"metadata": map[string]any{"annotations": map[string]string{"big": big}}})
	for name, a := range map[string]answer{
		"POST":   ask(t, config, "POST", podPath(ns, ""), manifest(t, fat), contentType, jsonType),
		"PUT":    ask(t, config, "PUT", podPath(ns, "web"), manifest(t, fatter), contentType, jsonType),
		"PATCH":  ask(t, config, "PATCH", podPath(ns, "web"), patch, contentType, mergeType),
		"DELETE": ask(t, config, "DELETE", podPath(ns, "web"), patch, contentType, jsonType),
	} {
		if a.code != http.StatusRequestEntityTooLarge || a.status(t).Reason != metav1.StatusReasonRequestEntityTooLarge {
			t.Errorf("%s: %s", name, a)
		}
	}
	now, err := endpoint(t).CoreV1().Pods(ns).Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil || now.DeletionTimestamp != nil || len(now.Annotations["big"]) > 0 {
		t.Errorf("the Pod has changed: %v", err)
	}
	// What is large but within the limit of one annotation object arrives.
	ok := pod("large")
	ok.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "LARGE", Value: strings.Repeat("y", 900<<10)}}
	if a := ask(t, config, "POST", podPath(ns, ""), manifest(t, ok), contentType, jsonType); a.code != http.StatusCreated {
		t.Errorf("a Pod of 900 KiB: %s", a)
	}
}

// fieldValidation of a routed write is Strict, Warn or Ignore, for what the
// schema does not know and for what the body holds twice.
func TestFieldValidation(t *testing.T) {
	t.Parallel()
	ns, config := namespace(t), labtest.Config(t, world.System)
	running(t, ns, pod("web"))
	unknown := bytes.Replace(manifest(t, pod("odd")), []byte(`"containers":`), []byte(`"nonsense":1,"containers":`), 1)
	twice := bytes.Replace(manifest(t, pod("odd")), []byte(`"containers":`), []byte(`"nodeName":"","nodeName":"","containers":`), 1)
	patch := []byte(`{"spec":{"nonsense":1}}`)
	for name, c := range map[string]struct {
		method, path, kind string
		body               []byte
		ok                 int
		says               string
	}{
		"unknown in POST":   {"POST", podPath(ns, ""), jsonType, unknown, 201, "nonsense"},
		"duplicate in POST": {"POST", podPath(ns, ""), jsonType, twice, 201, "nodeName"},
		"unknown in PATCH":  {"PATCH", podPath(ns, "web"), mergeType, patch, 200, "nonsense"},
	} {
		t.Run(name, func(t *testing.T) {
			send := func(mode string) answer {
				return ask(t, config, c.method, c.path+"?dryRun=All&fieldManager=chain&fieldValidation="+mode, c.body, contentType, c.kind)
			}
			if a := send("Strict"); a.code < 400 || a.code > 422 || !strings.Contains(a.status(t).Message, c.says) {
				t.Errorf("Strict: %s", a)
			}
			if a := send("Warn"); a.code != c.ok || !strings.Contains(strings.Join(a.header.Values("Warning"), " "), c.says) {
				t.Errorf("Warn: %s, warnings %q", a, a.header.Values("Warning"))
			}
			if a := send("Ignore"); a.code != c.ok || len(a.header.Values("Warning")) > 0 {
				t.Errorf("Ignore: %s, warnings %q", a, a.header.Values("Warning"))
			}
			if a := send("Perhaps"); a.code != http.StatusUnprocessableEntity {
				t.Errorf("an unknown mode: %s", a)
			}
		})
	}
}

// Protobuf and YAML are read where the kind has them; other types are 415, and
// answers in types that nobody speaks 406.
func TestMediaTypes(t *testing.T) {
	t.Parallel()
	ns, config := namespace(t), labtest.Config(t, world.System)
	p := running(t, ns, pod("web"))
	options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: new(p.UID + "x")}}
	options.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("DeleteOptions"))
	raw, err := options.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	envelope := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}, Raw: raw}
	body, err := envelope.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	// The precondition inside the protobuf body is seen, so it was decoded.
	a := ask(t, config, "DELETE", podPath(ns, "web"), append([]byte("k8s\x00"), body...), contentType, "application/vnd.kubernetes.protobuf")
	if a.code != http.StatusConflict {
		t.Errorf("DeleteOptions in protobuf with another UID: %s", a)
	}
	for name, c := range map[string]struct {
		kind string
		want int
	}{
		"CBOR": {"application/cbor", 415}, "text": {"text/plain", 415}, "YAML": {"application/yaml", 201},
	} {
		a := ask(t, config, "POST", podPath(ns, "")+"?dryRun=All", manifest(t, pod("other")), contentType, c.kind)
		if a.code != c.want {
			t.Errorf("POST in %s: %s", name, a)
		}
	}
	if a := ask(t, config, "GET", podPath(ns, ""), nil, "Accept", "application/cbor"); a.code != http.StatusNotAcceptable {
		t.Errorf("GET in CBOR: %s", a)
	}
	if a := ask(t, config, "GET", podPath(ns, ""), nil, "Accept", "application/cbor,application/json"); a.code != http.StatusOK ||
		!strings.HasPrefix(a.header.Get(contentType), jsonType) {
		t.Errorf("GET in CBOR or JSON: %s", a)
	}
	if a := ask(t, config, "GET", podPath(ns, ""), nil, "Accept", "application/yaml"); a.code != http.StatusOK || !bytes.Contains(a.body, []byte("kind: PodList")) {
		t.Errorf("GET in YAML: %s", a)
	}
}

// The audit log of the endpoint holds the objects of a routed request and
// names the member.
func TestAudit(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	log := labtest.AuditFrom(t, auditLog)
	pods := endpoint(t).CoreV1().Pods(ns)
	running(t, ns, inCluster(pod("web"), "m2"))
	if _, err := pods.Patch(t.Context(), "web", "application/merge-patch+json", []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := pods.Delete(t.Context(), "web", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
		t.Fatal(err)
	}
	want := map[string][2]bool{"create": {true, true}, "patch": {true, true}, "delete": {true, false}}
	for _, a := range log.Read(t) {
		objects, ok := want[a.Verb]
		if a.ObjectRef.Namespace != ns || a.ObjectRef.Resource != "pods" || a.ObjectRef.Subresource != "" || !ok || a.Stage != "ResponseComplete" {
			continue
		}
		delete(want, a.Verb)
		if a.Annotations["isthmus.dev/cluster"] != "m2" {
			t.Errorf("%s: annotations %v", a.Verb, a.Annotations)
		}
		if objects[0] && len(a.RequestObject) == 0 || objects[1] && !bytes.Contains(a.ResponseObject, []byte(`"web"`)) {
			t.Errorf("%s: request object %.100s, response object %.100s", a.Verb, a.RequestObject, a.ResponseObject)
		}
		if a.User.Username == "" || a.ResponseStatus.Code == 0 {
			t.Errorf("%s: %+v", a.Verb, a)
		}
	}
	if len(want) > 0 {
		t.Errorf("nothing in the log about %v", want)
	}
}
