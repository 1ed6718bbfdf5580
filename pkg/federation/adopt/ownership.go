package adopt

import (
	"bytes"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
)

// Claims is the set of fields that our last apply spoke of; false when we have
// never applied the object.
func Claims(entries []metav1.ManagedFieldsEntry) (*fieldpath.Set, bool, error) {
	for _, e := range entries {
		if isOurs(e) {
			set, err := fieldsOf(e)
			return set, err == nil, err
		}
	}
	return nil, false, nil
}

func isOurs(e metav1.ManagedFieldsEntry) bool {
	return e.Manager == marks.Manager && e.Operation == metav1.ManagedFieldsOperationApply && e.Subresource == ""
}

func fieldsOf(e metav1.ManagedFieldsEntry) (*fieldpath.Set, error) {
	set := fieldpath.NewSet()
	if e.FieldsV1 == nil {
		return set, nil
	}
	if err := set.FromJSON(bytes.NewReader(e.FieldsV1.GetRawBytes())); err != nil {
		return nil, fmt.Errorf("managedFields of %q: %w", e.Manager, err)
	}
	return set, nil
}

// Move makes what we speak of ours alone: from every manager of the object
// itself the fields in claims are taken, as if we had applied them all along,
// so that a field which the template drops later is really removed. Status and
// scale have owners of their own, which keep what they have, and so does every
// manager that keeps other fields.
//
// answer is our own entry as the member answered a dry run; its fields are the
// claims. An entry in another version of the API has other paths: what it names
// in the same words is taken, the rest of it is given up. The second result is
// false when nothing has to be written.
func Move(entries []metav1.ManagedFieldsEntry, answer metav1.ManagedFieldsEntry) ([]metav1.ManagedFieldsEntry, bool, error) {
	claims, err := fieldsOf(answer)
	if err != nil {
		return nil, false, err
	}
	taken := fieldpath.NewSet()
	var out []metav1.ManagedFieldsEntry
	changed := false
	for _, e := range entries {
		if e.Subresource != "" || isOurs(e) {
			out = append(out, e)
			continue
		}
		set, err := fieldsOf(e)
		if err != nil {
			return nil, false, err
		}
		both := set.Intersection(claims)
		taken = taken.Union(both)
		left := set.Difference(claims)
		switch {
		case e.APIVersion != answer.APIVersion:
			changed = true
			continue
		case both.Empty():
		case left.Empty():
			changed = true
			continue
		default:
			changed = true
			if e.FieldsV1, err = encode(left); err != nil {
				return nil, false, err
			}
		}
		out = append(out, e)
	}
	if !changed && len(entries) > 0 {
		return entries, false, nil
	}
	out, err = give(out, taken, claims, answer, len(entries) == 0)
	return out, err == nil, err
}

// give adds what was taken to our own entry. An object without any owner is
// ours in what we speak of: otherwise the first apply would invent an owner of
// everything.
func give(out []metav1.ManagedFieldsEntry, taken, claims *fieldpath.Set, answer metav1.ManagedFieldsEntry, unowned bool) ([]metav1.ManagedFieldsEntry, error) {
	if unowned {
		taken = claims
	}
	for i := range out {
		if !isOurs(out[i]) {
			continue
		}
		before, err := fieldsOf(out[i])
		if err != nil {
			return nil, err
		}
		out[i].APIVersion = answer.APIVersion
		out[i].FieldsV1, err = encode(before.Union(taken))
		return out, err
	}
	ours := answer
	var err error
	if ours.FieldsV1, err = encode(taken); err != nil {
		return nil, err
	}
	return append(out, ours), nil
}

func encode(set *fieldpath.Set) (*metav1.FieldsV1, error) {
	raw, err := set.ToJSON()
	if err != nil {
		return nil, fmt.Errorf("managedFields: %w", err)
	}
	f := &metav1.FieldsV1{}
	f.SetRawBytes(raw)
	return f, nil
}

// Answer is our own entry of an object.
func Answer(entries []metav1.ManagedFieldsEntry) (metav1.ManagedFieldsEntry, bool) {
	for _, e := range entries {
		if isOurs(e) {
			return e, true
		}
	}
	return metav1.ManagedFieldsEntry{}, false
}
