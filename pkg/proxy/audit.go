package proxy

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"net/http"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
)

// ClusterHeader names, in an answer, the member that it came from.
const ClusterHeader = "X-Isthmus-Cluster"

// NotLeadingHeader marks an answer that did nothing: another gateway may be the
// one to ask.
const NotLeadingHeader = "X-Isthmus-Not-Leading"

// auditAnnotation is the audit annotation that names the member.
const auditAnnotation = "isthmus.dev/cluster"

// auditLimit bounds the answer that is kept for the audit event, in bytes.
const auditLimit = BodyLimit

// annotateAudit copies the member's name from the answer's header into the
// audit event of the request and, where the audit policy asks for it, keeps the
// answer. Call record when the request is done.
func annotateAudit(w http.ResponseWriter, r *http.Request, info *request.RequestInfo) *auditWriter {
	keep := info != nil && info.Verb != "watch" && Audits(r.Context(), auditinternal.LevelRequestResponse)
	return &auditWriter{ResponseWriter: w, request: r, keep: keep}
}

type auditWriter struct {
	http.ResponseWriter
	request   *http.Request
	annotated bool
	keep      bool
	body      bytes.Buffer
}

// record puts the kept answer into the audit event.
func (w *auditWriter) record() {
	if !w.keep || w.body.Len() == 0 || w.Header().Get("Content-Encoding") != "" {
		return
	}
	if object, gvk := DecodeObject(w.body.Bytes()); object != nil {
		audit.LogResponseObject(w.request.Context(), object, gvk.GroupVersion(), legacyscheme.Codecs)
	}
}

// Audits says whether the audit policy wants at least this level of a request.
func Audits(ctx context.Context, level auditinternal.Level) bool {
	ac := audit.AuditContextFrom(ctx)
	return ac != nil && ac.Enabled() && !ac.GetEventLevel().Less(level)
}

// DecodeObject reads JSON, YAML or protobuf of a known kind, or JSON of any
// kind; nil when it is neither.
func DecodeObject(body []byte) (runtime.Object, schema.GroupVersionKind) {
	object, gvk, err := legacyscheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err == nil {
		return object, *gvk
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(body); err != nil {
		return nil, schema.GroupVersionKind{}
	}
	return u, u.GroupVersionKind()
}

// Unwrap lets http.ResponseController reach the inner writer.
func (w *auditWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *auditWriter) annotate() {
	if w.annotated {
		return
	}
	w.annotated = true
	if cluster := w.Header().Get(ClusterHeader); cluster != "" {
		audit.AddAuditAnnotation(w.request.Context(), auditAnnotation, cluster)
	}
}

func (w *auditWriter) WriteHeader(code int) {
	w.annotate()
	w.ResponseWriter.WriteHeader(code)
}

func (w *auditWriter) Write(b []byte) (int, error) {
	w.annotate()
	if w.keep {
		if w.keep = w.body.Len()+len(b) <= auditLimit; w.keep {
			w.body.Write(b)
		}
	}
	return w.ResponseWriter.Write(b)
}

func (w *auditWriter) Flush() {
	w.annotate()
	if f, ok := w.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

// Hijack serves upgraded connections.
func (w *auditWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.annotate()
	w.keep = false
	return http.NewResponseController(w.ResponseWriter).Hijack()
}
