package intent

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// Template is what a live read of the template has shown.
type Template struct {
	Found    bool
	UID      types.UID
	Deleting bool
	// Finalizer is set when our finalizer is still there.
	Finalizer bool
	// Held is an operator's wish to leave the copies alone.
	Held bool
	// Orphan is set when the client asked to leave dependents alone.
	Orphan bool
}

// Binding is what a live read of the binding has shown.
type Binding struct {
	Found bool
	// TemplateUID is the template that the targets were decided for.
	TemplateUID types.UID
	Targets     []string
	// Decided is false as long as no decision has ever been made.
	Decided bool
	// Preserve is the policy's wish to leave copies in the members.
	Preserve bool
	// DeletedTemplate is the UID of a template that was deleted while a
	// member with a copy could not be reached.
	DeletedTemplate types.UID
	// Orphan says that the deletion of that template leaves dependents alone.
	Orphan bool
}

// Copy is what a live read of the member's object has shown.
type Copy struct {
	Found bool
	// Ours says that the marks are ours and match the object.
	Ours        bool
	Held        bool
	TemplateUID types.UID
}

// Verdict says what may be done to a copy.
type Verdict int

const (
	// Keep leaves the copy as it is.
	Keep Verdict = iota
	// Delete removes it, and what depends on it.
	Delete
	// Orphan removes it alone.
	Orphan
	// Release takes off our marks and leaves the object.
	Release
)

func (v Verdict) String() string { return [...]string{"Keep", "Delete", "Orphan", "Release"}[v] }

// Judge decides about one copy in one cluster. Absence is never a reason: an
// object goes only because its template is being deleted, because it was
// recorded that it had been, or because a recorded placement leaves the
// cluster out.
func Judge(cluster string, t Template, b Binding, c Copy) (Verdict, string) {
	switch {
	case !c.Found:
		return Keep, "there is no copy"
	case !c.Ours:
		return Keep, "the object is not managed by this control plane"
	case c.Held:
		return Keep, "the copy is on hold"
	case t.Held:
		return Keep, "the template is on hold"
	case t.Found && t.Deleting && t.Finalizer:
		return remove(b.Preserve, t.Orphan, "the template is being deleted")
	case t.Found && t.Deleting:
		return Keep, "the template is being deleted, but no longer by us"
	case t.Found && b.Found && b.Decided && b.TemplateUID == t.UID && !slices.Contains(b.Targets, cluster):
		return remove(false, false, "the placement leaves the cluster out")
	case t.Found:
		return Keep, "the placement includes the cluster, or is not decided"
	case b.Found && b.DeletedTemplate != "" && b.DeletedTemplate == c.TemplateUID:
		return remove(b.Preserve, b.Orphan, "the template was deleted while the cluster could not be reached")
	default:
		return Keep, "the template is absent, and nothing records that it was deleted: orphan"
	}
}

func remove(preserve, orphan bool, why string) (Verdict, string) {
	switch {
	case preserve:
		return Release, why
	case orphan:
		return Orphan, why
	}
	return Delete, why
}
