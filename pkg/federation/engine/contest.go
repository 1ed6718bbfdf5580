package engine

import (
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isthmus-dev/isthmus/pkg/federation/drift"
	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
)

// contested reports that somebody keeps changing what is ours: which fields, and
// who wrote last. While that is reported the member is not asked again.
func (m *member) contested(ctx context.Context, key marks.Key, t *template, r *rendered) {
	if strings.HasPrefix(m.record(key).problem, errContested.Error()) {
		return
	}
	res, err := m.resource(key)
	if err != nil {
		m.fail(key, t, errContested)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, m.engine.cfg.RequestTimeout)
	defer cancel()
	u, err := res.Get(ctx, key.Name, metav1.GetOptions{})
	if err != nil {
		m.fail(key, t, errContested)
		return
	}
	m.fail(key, t, contest(r.object.Object, u.Object, u.GetManagedFields()))
}

// contest says what differs, without values: they change, and may be secret.
func contest(wanted, have map[string]any, entries []metav1.ManagedFieldsEntry) error {
	const most = 5
	var fields []string
	for i, d := range drift.Between(wanted, have) {
		if i == most {
			fields = append(fields, "...")
			break
		}
		fields = append(fields, d.Path)
	}
	what, who := strings.Join(fields, ", "), lastWriter(entries)
	switch {
	case what == "":
		return errContested // at this moment it is as it should be
	case who == "":
		return fmt.Errorf("%w: %s", errContested, what)
	}
	return fmt.Errorf("%w: %s (last written by %q)", errContested, what, who)
}

// lastWriter is the manager, other than us, that has written the object last.
func lastWriter(entries []metav1.ManagedFieldsEntry) string {
	who, last := "", time.Time{}
	for _, e := range entries {
		if e.Subresource == "" && !strings.HasPrefix(e.Manager, marks.Manager) && e.Time != nil && !e.Time.Time.Before(last) {
			who, last = e.Manager, e.Time.Time
		}
	}
	return who
}
