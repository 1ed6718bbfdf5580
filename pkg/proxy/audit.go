package proxy

import (
	"bufio"
	"net"
	"net/http"

	"k8s.io/apiserver/pkg/audit"
)

// ClusterHeader names, in an answer, the member that it came from.
const ClusterHeader = "X-Isthmus-Cluster"

// auditAnnotation is the audit annotation that names the member.
const auditAnnotation = "isthmus.dev/cluster"

// annotateAudit copies the member's name from the answer's header into the
// audit event of the request.
func annotateAudit(w http.ResponseWriter, r *http.Request) http.ResponseWriter {
	return &auditWriter{ResponseWriter: w, request: r}
}

type auditWriter struct {
	http.ResponseWriter
	request   *http.Request
	annotated bool
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
	return http.NewResponseController(w.ResponseWriter).Hijack()
}
