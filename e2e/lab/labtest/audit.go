package labtest

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"testing"
	"time"

	"github.com/isthmus-dev/isthmus/e2e/lab"
)

// The product's identities in a member, as its audit log names them.
const (
	ReadUser  = "system:serviceaccount:isthmus-system:isthmus-read"
	ApplyUser = "system:serviceaccount:isthmus-system:isthmus-apply"
)

// Audited is one request that a server has answered.
type Audited struct {
	Stage string `json:"stage"`
	Verb  string `json:"verb"`
	User  struct {
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
	RequestURI     string            `json:"requestURI"`
	Received       time.Time         `json:"requestReceivedTimestamp"`
	StageTimestamp time.Time         `json:"stageTimestamp"`
	UserAgent      string            `json:"userAgent"`
	Annotations    map[string]string `json:"annotations"`
	RequestObject  json.RawMessage   `json:"requestObject"`
	ResponseObject json.RawMessage   `json:"responseObject"`
}

// Writes says whether the verb changes something.
func (a Audited) Writes() bool {
	switch a.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return true
	}
	return false
}

// AuditLog reads what is appended to an audit log after a moment.
type AuditLog struct {
	path  string
	begin int64
}

// MemberAudit is the audit log of a member from now on.
func MemberAudit(t testing.TB, m *lab.Member) AuditLog {
	t.Helper()
	return AuditFrom(t, m.AuditLog())
}

// WholeAudit is the audit log of a member from its beginning.
func WholeAudit(m *lab.Member) AuditLog { return AuditLog{path: m.AuditLog()} }

// AuditFrom is an audit log in a file from now on.
func AuditFrom(t testing.TB, path string) AuditLog {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return AuditLog{path, info.Size()}
}

// Read returns what has been appended.
func (l AuditLog) Read(t testing.TB) []Audited {
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
	var out []Audited
	first := true
	for line := range bytes.Lines(data) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // being written
		}
		var a Audited
		if err := json.Unmarshal(line, &a); err == nil {
			out = append(out, a)
		} else if !first || l.begin == 0 { // the log may begin in the middle of a line
			t.Fatalf("%s: %v: %.200s", l.path, err, line)
		}
		first = false
	}
	return out
}

// WritesBy keeps the writes of one user.
func WritesBy(user string, all []Audited) []Audited {
	var out []Audited
	for _, a := range all {
		if a.Writes() && a.User.Username == user {
			out = append(out, a)
		}
	}
	return out
}
