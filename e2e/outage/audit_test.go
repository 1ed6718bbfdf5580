package outage

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/isthmus-dev/isthmus/e2e/lab"
)

const (
	readUser  = "system:serviceaccount:isthmus-system:isthmus-read"
	applyUser = "system:serviceaccount:isthmus-system:isthmus-apply"
)

// audited is one request that a member has answered.
type audited struct {
	Verb string `json:"verb"`
	User struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef struct {
		APIGroup    string `json:"apiGroup"`
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	RequestURI string `json:"requestURI"`
	UserAgent  string `json:"userAgent"`
}

func (a audited) writes() bool {
	switch a.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return true
	}
	return false
}

// auditLog reads what is appended to a member's audit log from now on.
type auditLog struct {
	path  string
	begin int64
}

func auditFromNow(t testing.TB, m *lab.Member) auditLog {
	t.Helper()
	info, err := os.Stat(m.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	return auditLog{m.AuditLog(), info.Size()}
}

func (l auditLog) read(t testing.TB) []audited {
	t.Helper()
	f, err := os.Open(l.path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // only read
	if _, err := f.Seek(l.begin, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	var out []audited
	for line := range bytes.Lines(data) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // being written
		}
		var a audited
		if err := json.Unmarshal(line, &a); err != nil {
			if l.begin > 0 && len(out) == 0 {
				continue // the log began in the middle of a line
			}
			t.Fatalf("%s: %v: %.200s", l.path, err, line)
		}
		out = append(out, a)
	}
	return out
}

// by keeps the writes of one user.
func by(user string, all []audited) []audited {
	var out []audited
	for _, a := range all {
		if a.writes() && a.User.Username == user {
			out = append(out, a)
		}
	}
	return out
}

// ours says whether a write touches nothing but our identities, or changes
// nothing at all.
func (a audited) ours() bool {
	o := a.ObjectRef
	switch {
	case o.Namespace == ourNamespace, o.Resource == "namespaces" && o.Name == ourNamespace:
		return true
	case o.APIGroup == "rbac.authorization.k8s.io":
		return strings.HasPrefix(o.Name, "isthmus-")
	case strings.HasSuffix(o.APIGroup, "authorization.k8s.io"), strings.HasSuffix(o.APIGroup, "authentication.k8s.io"):
		return a.Verb == "create" // a review
	}
	return false
}
