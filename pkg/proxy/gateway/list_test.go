package gateway

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"sigs.k8s.io/yaml"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

const (
	tableJSON   = "application/json;as=Table;v=v1;g=meta.k8s.io"
	partialJSON = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
	protobuf    = runtime.ContentTypeProtobuf
)

func names(items []corev1.Pod) []string {
	var out []string
	for _, p := range items {
		out = append(out, p.Namespace+"/"+p.Name)
	}
	return out
}

func TestListFormsAgree(t *testing.T) {
	e := newEndpoint(t)
	e.putPods(t, "m1", "default", 3)
	e.putPods(t, "m2", "other", 2)
	want := []string{"default/m1-000", "default/m1-001", "default/m1-002", "other/m2-000", "other/m2-001"}

	list := fetchJSON[corev1.PodList](t, e, "/api/v1/pods", "", 200)
	if got := names(list.Items); !slices.Equal(got, want) {
		t.Errorf("JSON: %v, want %v", got, want)
	}
	if list.Kind != "PodList" || list.APIVersion != "v1" || list.ResourceVersion != "150" {
		t.Errorf("list %+v, %+v", list.TypeMeta, list.ListMeta)
	}
	if list.Items[0].Kind != "" || list.Items[0].APIVersion != "" {
		t.Errorf("an item of a typed list has a kind: %+v", list.Items[0].TypeMeta)
	}
	if list.Items[0].Labels[cache.ClusterLabel] != "m1" {
		t.Errorf("labels %v", list.Items[0].Labels)
	}

	_, b := e.fetch(t, "/api/v1/pods", protobuf)
	obj, _, err := legacyscheme.Codecs.UniversalDeserializer().Decode(b, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := names(obj.(*corev1.PodList).Items); !slices.Equal(got, want) {
		t.Errorf("protobuf: %v, want %v", got, want)
	}

	_, b = e.fetch(t, "/api/v1/pods", "application/yaml")
	var fromYAML corev1.PodList
	if err := yaml.UnmarshalStrict(b, &fromYAML); err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	if got := names(fromYAML.Items); !slices.Equal(got, want) {
		t.Errorf("YAML: %v, want %v", got, want)
	}

	_, b = e.fetch(t, "/api/v1/pods?pretty=true", "")
	var pretty, plain bytes.Buffer
	if err := json.Indent(&pretty, b, "", "  "); err != nil || !bytes.Equal(pretty.Bytes(), b) {
		t.Errorf("pretty list is not indented as json.Indent does (%v):\n%s", err, b)
	}
	if err := json.Compact(&plain, b); err != nil {
		t.Fatal(err)
	}
	_, compact := e.fetch(t, "/api/v1/pods", "")
	if plain.String()+"\n" != string(compact) {
		t.Errorf("pretty and plain differ")
	}

	partial := fetchJSON[metav1.PartialObjectMetadataList](t, e, "/api/v1/pods", partialJSON, 200)
	if len(partial.Items) != 5 || partial.Kind != "PartialObjectMetadataList" || partial.Items[0].Kind != "PartialObjectMetadata" || partial.Items[4].Name != "m2-001" {
		t.Errorf("partial %+v", partial)
	}
	_, b = e.fetch(t, "/api/v1/pods", protobuf+";as=PartialObjectMetadataList;v=v1;g=meta.k8s.io")
	var unknown runtime.Unknown
	if err := unknown.Unmarshal(b[4:]); err != nil {
		t.Fatal(err)
	}
	var partialProto metav1.PartialObjectMetadataList
	if err := partialProto.Unmarshal(unknown.Raw); err != nil {
		t.Fatal(err)
	}
	if unknown.Kind != "PartialObjectMetadataList" || len(partialProto.Items) != 5 || partialProto.Items[2].Name != "m1-002" || partialProto.ResourceVersion != "150" {
		t.Errorf("protobuf partial %+v", partialProto)
	}
}

func TestListTable(t *testing.T) {
	e := newEndpoint(t)
	e.putPods(t, "m1", "default", 1)
	table := fetchJSON[metav1.Table](t, e, "/api/v1/pods", tableJSON, 200)
	var columns []string
	for _, c := range table.ColumnDefinitions {
		columns = append(columns, c.Name)
	}
	if want := []string{"Name", "Cluster", "Ready", "Status", "Restarts", "Age", "IP", "Node", "Nominated Node", "Readiness Gates"}; !slices.Equal(columns, want) {
		t.Errorf("columns %v, want %v", columns, want)
	}
	if table.ColumnDefinitions[1].Priority != 0 {
		t.Errorf("the cluster column is not shown by default")
	}
	row := table.Rows[0]
	if row.Cells[0] != "m1-000" || row.Cells[1] != "m1" || row.Cells[3] != "Running" || len(row.Cells) != len(columns) {
		t.Errorf("cells %v", row.Cells)
	}
	if !bytes.Contains(row.Object.Raw, []byte(`"kind":"PartialObjectMetadata"`)) {
		t.Errorf("row object %s", row.Object.Raw)
	}
	none := fetchJSON[metav1.Table](t, e, "/api/v1/pods?includeObject=None", tableJSON, 200)
	if len(none.Rows[0].Object.Raw) > 0 && string(none.Rows[0].Object.Raw) != "null" {
		t.Errorf("includeObject=None has %s", none.Rows[0].Object.Raw)
	}
	whole := fetchJSON[metav1.Table](t, e, "/api/v1/pods?includeObject=Object", tableJSON, 200)
	if !bytes.Contains(whole.Rows[0].Object.Raw, []byte(`"kind":"Pod"`)) || !bytes.Contains(whole.Rows[0].Object.Raw, []byte("nginx")) {
		t.Errorf("includeObject=Object has %s", whole.Rows[0].Object.Raw)
	}
	fetchJSON[metav1.Status](t, e, "/api/v1/pods?includeObject=All", tableJSON, 400)
	// A Table has no protobuf form: the client's second choice is served.
	resp, _ := e.fetch(t, "/api/v1/pods", protobuf+";as=Table;v=v1;g=meta.k8s.io,application/json")
	if ct := resp.Header.Get("Content-Type"); ct != "application/json" {
		t.Errorf("content type %q", ct)
	}
}

func TestListOfNothing(t *testing.T) {
	e := newEndpoint(t)
	for _, path := range []string{"/api/v1/pods", "/api/v1/namespaces/none/pods", "/api/v1/nodes", "/apis/example.com/v1/widgets", "/apis/events.k8s.io/v1/events", "/api/v1/pods?labelSelector=a%3Db", "/api/v1/pods?limit=5"} {
		for _, query := range []string{"", "pretty=1"} {
			sep := "?"
			if strings.Contains(path, "?") {
				sep = "&"
			}
			_, b := e.fetch(t, path+sep+query, "application/json")
			var list map[string]any
			if err := json.Unmarshal(b, &list); err != nil {
				t.Fatalf("%s: %v: %s", path, err, b)
			}
			if items, ok := list["items"].([]any); !ok || len(items) != 0 {
				t.Errorf("%s: items %v", path, list["items"])
			}
			if rv := list["metadata"].(map[string]any)["resourceVersion"]; rv != "100" {
				t.Errorf("%s: resourceVersion %v", path, rv)
			}
		}
		table := fetchJSON[map[string]any](t, e, path, tableJSON, 200)
		if rows, ok := table["rows"].([]any); !ok || len(rows) != 0 {
			t.Errorf("%s: rows %v", path, table["rows"])
		}
		_, b := e.fetch(t, path, "application/yaml")
		var list map[string]any
		if err := yaml.Unmarshal(b, &list); err != nil || list["items"] == nil {
			t.Errorf("%s: YAML %v: %s", path, err, b)
		}
	}
}

func TestListPages(t *testing.T) {
	for _, selector := range []string{"", "&labelSelector=app%3Dweb", "&fieldSelector=spec.nodeName%3Dn1"} {
		for _, path := range []string{"/api/v1/pods", "/api/v1/namespaces/default/pods"} {
			for _, limit := range []int{1, 3, 5, 7, 10, 11, 12, 13, 5000} {
				t.Run(fmt.Sprintf("%s,%d%s", path, limit, selector), func(t *testing.T) {
					checkPages(t, path, limit, selector)
				})
			}
		}
	}
}

// checkPages follows the tokens while objects come and go: the pages are of
// one moment.
func checkPages(t *testing.T, path string, limit int, selector string) {
	e := newEndpoint(t)
	e.putPods(t, "m1", "default", 7)
	e.putPods(t, "m2", "default", 5)
	total := 12
	if path == "/api/v1/pods" {
		e.putPods(t, "m2", "zz", 1)
		total = 13
	}
	var got []string
	rv, token := "", ""
	for i := 0; ; i++ {
		list := fetchJSON[corev1.PodList](t, e, fmt.Sprintf("%s?limit=%d&continue=%s%s", path, limit, url.QueryEscape(token), selector), "", 200)
		if rv == "" {
			rv = list.ResourceVersion
		}
		if list.ResourceVersion != rv {
			t.Errorf("page %d has RV %s, the first %s", i, list.ResourceVersion, rv)
		}
		got = append(got, names(list.Items)...)
		e.pods.put(t, "m3", pod("default", fmt.Sprintf("m1-00%dx", i)), podFields)
		if i == 1 {
			e.pods.remove(t, pod("default", "m2-004"))
		}
		if list.Continue == "" {
			if list.RemainingItemCount != nil {
				t.Errorf("the last page has remainingItemCount %d", *list.RemainingItemCount)
			}
			break
		}
		if selector != "" && list.RemainingItemCount != nil {
			t.Errorf("remainingItemCount with a selector: %d", *list.RemainingItemCount)
		}
		if selector == "" && (list.RemainingItemCount == nil || int(*list.RemainingItemCount) != total-len(got)) {
			t.Errorf("page %d: remainingItemCount %v, want %d", i, list.RemainingItemCount, total-len(got))
		}
		token = list.Continue
	}
	if len(got) != total || !slices.IsSorted(got) || slices.ContainsFunc(got, func(s string) bool { return strings.HasSuffix(s, "x") }) {
		t.Errorf("pages hold %v", got)
	}
}

func TestListContinueExpired(t *testing.T) {
	e := newEndpoint(t)
	e.putPods(t, "m1", "default", 5)
	first := fetchJSON[corev1.PodList](t, e, "/api/v1/pods?limit=2", "", 200)
	e.pods.expire()
	status := fetchJSON[metav1.Status](t, e, "/api/v1/pods?limit=2&continue="+first.Continue, "", 410)
	if status.Reason != metav1.StatusReasonExpired || status.ListMeta.Continue == "" {
		t.Fatalf("status %+v", status)
	}
	rest := fetchJSON[corev1.PodList](t, e, "/api/v1/pods?continue="+status.ListMeta.Continue, "", 200)
	if got := names(rest.Items); !slices.Equal(got, []string{"default/m1-002", "default/m1-003", "default/m1-004"}) {
		t.Errorf("after the expired token: %v", got)
	}
}

func TestListOptions(t *testing.T) {
	e := newEndpoint(t)
	e.putPods(t, "m1", "default", 3) // RVs 110, 120, 130
	for _, tc := range []struct {
		query string
		code  int
		items int
	}{
		{"", 200, 3},
		{"resourceVersion=0", 200, 3},
		{"resourceVersion=0&limit=1", 200, 3},
		{"resourceVersion=120", 200, 3},
		{"resourceVersion=120&limit=500", 200, 2},
		{"resourceVersion=120&resourceVersionMatch=NotOlderThan&limit=2", 200, 2},
		{"resourceVersion=120&resourceVersionMatch=Exact", 200, 2},
		{"resourceVersion=125&resourceVersionMatch=Exact", 200, 2},
		{"resourceVersion=99&resourceVersionMatch=Exact", 410, 0},
		{"resourceVersion=0&resourceVersionMatch=Exact", 422, 0},
		{"resourceVersionMatch=NotOlderThan", 422, 0},
		{"resourceVersionMatch=Sideways&resourceVersion=1", 422, 0},
		{"sendInitialEvents=true", 422, 0},
		{"resourceVersion=131", 504, 0},
		{"resourceVersion=99999999999999999999999", 504, 0},
		{"resourceVersion=abc", 400, 0},
		{"resourceVersion=-1", 400, 0},
		{"resourceVersion=1.5", 400, 0},
		{"continue=abc", 400, 0},
		{"continue=%00", 400, 0},
		{"resourceVersion=5&continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MTMwLCJzdGFydCI6ImEvYiJ9", 400, 0},
		{"limit=x", 400, 0},
		{"limit=-1", 200, 3},
		{"labelSelector=%21%21", 400, 0},
		{"labelSelector=app+in+(web,db)", 200, 3},
		{"labelSelector=isthmus.dev/cluster%3Dm2", 200, 0},
		{"fieldSelector=spec.nodeName%3Dn1", 200, 3},
		{"fieldSelector=spec.nodeName%21%3Dn1", 200, 0},
		{"fieldSelector=status.phase%3DRunning,metadata.name%3Dm1-001", 200, 1},
		{"fieldSelector=metadata.namespace%3Ddefault", 200, 3},
		{"fieldSelector=metadata.namespace%3Dother", 200, 0},
		{"fieldSelector=spec.color%3Dred", 400, 0},
		{"fieldSelector=%3D%3D%3D", 400, 0},
		{"consistency=strict", 200, 3},
		{"consistency=eventual", 400, 0},
	} {
		t.Run(tc.query, func(t *testing.T) {
			resp, b := e.fetch(t, "/api/v1/pods?"+tc.query, "")
			if resp.StatusCode != tc.code {
				t.Fatalf("%d, want %d: %s", resp.StatusCode, tc.code, b)
			}
			if tc.code != 200 {
				var status metav1.Status
				if err := json.Unmarshal(b, &status); err != nil || status.Kind != "Status" || int(status.Code) != tc.code || status.Reason == "" {
					t.Errorf("not a Status: %v: %s", err, b)
				}
				return
			}
			var list corev1.PodList
			if err := json.Unmarshal(b, &list); err != nil {
				t.Fatal(err)
			}
			if len(list.Items) != tc.items {
				t.Errorf("%d items, want %d", len(list.Items), tc.items)
			}
			if strings.Contains(tc.query, "resourceVersion=0") && list.Continue != "" {
				t.Errorf("RV=0 is paged")
			}
		})
	}
}

func TestUnknownFieldWording(t *testing.T) {
	e := newEndpoint(t)
	for path, want := range map[string]string{
		"/api/v1/pods?fieldSelector=spec.color%3Dred":                   "field label not supported: spec.color",
		"/apis/example.com/v1/widgets?fieldSelector=spec.size%3Dlarge":  "field label not supported: spec.size",
		"/apis/events.k8s.io/v1/events?fieldSelector=nothing%3Dat.all":  "field label not supported: nothing",
		"/api/v1/pods?fieldSelector=metadata.name%3Da,metadata.uid%3Db": "field label not supported: metadata.uid",
	} {
		if status := fetchJSON[metav1.Status](t, e, path, "", 400); status.Message != want {
			t.Errorf("%s: %q, want %q", path, status.Message, want)
		}
	}
}

func TestListGaps(t *testing.T) {
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	e := newEndpoint(t, func(o *Options) { o.LoadWait = 50 * time.Millisecond })
	e.putPods(t, "m1", "default", 1)
	e.pods.setGaps(cache.Gap{Cluster: "m2", Kind: cache.Stale, Since: since, Reason: "dial \"x\"\r\nSet-Cookie: a"})
	resp, _ := e.fetch(t, "/api/v1/pods", "")
	if got := resp.Header.Get("Warning"); resp.StatusCode != 200 || !strings.HasPrefix(got, `299 - "cluster \"m2\" unreachable since 2026-01-02T03:04:05Z`) || resp.Header.Get("Set-Cookie") != "" {
		t.Errorf("%d, warning %q", resp.StatusCode, got)
	}
	if resp, _ = e.fetch(t, "/api/v1/pods?labelSelector=isthmus.dev/cluster%3Dm1", ""); resp.Header.Get("Warning") != "" {
		t.Errorf("a list of m1 alone warns about m2")
	}
	status := fetchJSON[metav1.Status](t, e, "/api/v1/pods?consistency=strict", "", 503)
	if status.Details == nil || len(status.Details.Causes) != 1 || status.Details.Causes[0].Field != "m2" {
		t.Errorf("strict: %+v", status.Details)
	}
	e.pods.setGaps(cache.Gap{Cluster: "m3", Kind: cache.NotLoaded, Since: since, Reason: "no snapshot"})
	resp, b := e.fetch(t, "/api/v1/pods", "")
	if resp.StatusCode != 503 || !bytes.Contains(b, []byte("multicluster-apiserver absent m3")) || resp.Header.Get("Retry-After") == "" {
		t.Errorf("%d: %s", resp.StatusCode, b)
	}
	fetchJSON[metav1.Status](t, e, "/api/v1/namespaces/default/pods/m1-zzz", "", 503)
	fetchJSON[corev1.Pod](t, e, "/api/v1/namespaces/default/pods/m1-000", "", 200)
	fetchJSON[corev1.PodList](t, e, "/api/v1/pods?labelSelector=isthmus.dev/cluster%3Dm1", "", 200)
}

func TestListWaitsForLoading(t *testing.T) {
	e := newEndpoint(t)
	e.putPods(t, "m1", "default", 1)
	e.pods.setGaps(cache.Gap{Cluster: "m3", Kind: cache.NotLoaded})
	time.AfterFunc(50*time.Millisecond, func() { e.pods.setGaps() })
	begin := time.Now()
	fetchJSON[corev1.PodList](t, e, "/api/v1/pods", "", 200)
	if took := time.Since(begin); took < 40*time.Millisecond || took > 5*time.Second {
		t.Errorf("took %s", took)
	}
}

func TestWarningsAreBounded(t *testing.T) {
	var gaps []cache.Gap
	for i := range 500 {
		gaps = append(gaps, cache.Gap{Cluster: cache.ClusterName(fmt.Sprintf("m%d", i)), Reason: strings.Repeat("é\x00\xff", 300)})
	}
	texts := warnings(gaps)
	if len(texts) != maxWarnings || !strings.Contains(texts[maxWarnings-1], "and 489 more") {
		t.Errorf("%d warnings, the last %q", len(texts), texts[len(texts)-1])
	}
	for _, text := range texts {
		if len(text) > maxWarning || strings.ContainsAny(text, "\x00\r\n") || strings.ToValidUTF8(text, "") != text {
			t.Errorf("warning %q", text)
		}
	}
}

func TestListGzip(t *testing.T) {
	e := newEndpoint(t)
	e.putPods(t, "m1", "default", 1)
	for _, accept := range []string{"application/json", protobuf, tableJSON, "application/yaml"} {
		resp, _ := e.fetch(t, "/api/v1/pods", accept, "Accept-Encoding", "gzip")
		if resp.Header.Get("Content-Encoding") != "" {
			t.Errorf("%s: a small list is compressed", accept)
		}
	}
	e.putPods(t, "m2", "default", 999)
	for _, accept := range []string{"application/json", protobuf, "application/yaml"} {
		_, plain := e.fetch(t, "/api/v1/pods", accept)
		resp, b := e.fetch(t, "/api/v1/pods", accept, "Accept-Encoding", "br, gzip;q=0.5")
		if resp.Header.Get("Content-Encoding") != "gzip" || resp.Header.Get("Vary") != "Accept-Encoding" {
			t.Fatalf("%s: headers %v", accept, resp.Header)
		}
		gz, err := gzip.NewReader(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(gz)
		if err != nil || !bytes.Equal(got, plain) {
			t.Errorf("%s: %v; %d bytes, want %d", accept, err, len(got), len(plain))
		}
		if resp, _ = e.fetch(t, "/api/v1/pods", accept, "Accept-Encoding", "gzip;q=0"); resp.Header.Get("Content-Encoding") != "" {
			t.Errorf("%s: compressed although refused", accept)
		}
	}
}

func TestNotAcceptable(t *testing.T) {
	e := newEndpoint(t)
	e.widgets.putRaw(widget("default", "w1", "red"))
	const objects, tables = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", "application/json;as=Table;v=v2;g=meta.k8s.io"
	const one = "/apis/example.com/v1/namespaces/default/widgets/w1"
	for path, accepts := range map[string][]string{
		"/api/v1/pods":                 {"text/html", objects, tables},
		"/apis/example.com/v1/widgets": {protobuf},
		one:                            {partialJSON},
		"/api/v1/pods?watch=1":         {"application/yaml", partialJSON},
	} {
		for _, accept := range accepts {
			if resp, b := e.fetch(t, path, accept); resp.StatusCode != 406 {
				t.Errorf("%s as %s: %d: %s", path, accept, resp.StatusCode, b)
			}
		}
	}
	if resp, b := e.fetch(t, "/apis/example.com/v1/widgets", protobuf+";as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"); resp.StatusCode != 200 || !bytes.HasPrefix(b, protoMagic) {
		t.Errorf("metadata of a custom resource in protobuf: %d", resp.StatusCode)
	}
}

func TestErrorIsNegotiated(t *testing.T) {
	e := newEndpoint(t)
	resp, b := e.fetch(t, "/api/v1/namespaces/default/pods/none", protobuf)
	obj, _, err := legacyscheme.Codecs.UniversalDeserializer().Decode(b, nil, nil)
	if err != nil || resp.StatusCode != http.StatusNotFound {
		t.Fatalf("%d, %v", resp.StatusCode, err)
	}
	if s := obj.(*metav1.Status); s.Reason != metav1.StatusReasonNotFound || s.Details.Name != "none" || s.Details.Kind != "pods" {
		t.Errorf("%+v", s)
	}
}
