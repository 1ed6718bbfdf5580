package gateway

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/storage"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

// continueToken has the form of kube-apiserver's, and beside it how many
// objects follow the page, so that the next page need not count them again.
// Whoever forges that number deceives nobody but himself.
type continueToken struct {
	APIVersion      string `json:"v"`
	ResourceVersion int64  `json:"rv"`
	StartKey        string `json:"start"`
	Left            *int64 `json:"left,omitempty"`
}

const continueVersion = "meta.k8s.io/v1"

// position is where a page begins.
type position struct {
	from cache.Key
	// rv is the snapshot's, 0 for the first page and for a token that gave
	// up its snapshot.
	rv uint64
	// left is the number of objects from here on, nil when not known.
	left *int64
	// start is the key as the token spells it.
	start string
}

// encodePosition makes the token of the page that begins after last.
func encodePosition(rv uint64, last cache.Key, namespaced bool, left *int64) (string, error) {
	start := last.Name + "\x00"
	if namespaced {
		start = last.Namespace + "/" + start
	}
	b, err := json.Marshal(continueToken{APIVersion: continueVersion, ResourceVersion: int64(rv), StartKey: start, Left: left})
	if err != nil {
		return "", fmt.Errorf("encoding the continue token: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(b), nil
}

// decodePosition reads a token from the client. A bad one is a 400.
func decodePosition(token string, namespaced bool) (position, error) {
	start, rv, err := storage.DecodeContinue(token, "")
	if err != nil {
		return position{}, badRequest("invalid continue token: %v", err)
	}
	p := position{start: start}
	switch {
	case rv > 0:
		p.rv = uint64(rv)
	case rv != -1:
		return position{}, badRequest("continue key is not valid: resourceVersion %d", rv)
	}
	if !namespaced {
		p.from = cache.Key{Name: start}
	} else if ns, name, ok := strings.Cut(start, "/"); ok {
		p.from = cache.Key{Namespace: ns, Name: name}
	} else {
		return position{}, badRequest("continue key is not valid: no namespace in %q", start)
	}
	var extra continueToken
	if b, err := base64.RawURLEncoding.DecodeString(token); err == nil && json.Unmarshal(b, &extra) == nil && rv > 0 {
		p.left = extra.Left
	}
	return p, nil
}

// page is one answer of a LIST: its metadata and its items, which can be walked
// more than once.
type page struct {
	meta listMeta
	runs iter.Seq[cache.Run]
	held []cache.Run // what runs walks, where that is held
}

// hold keeps the runs, so that they need not be looked for again.
func (p *page) hold() {
	p.held = slices.Collect(p.runs)
	p.runs = slices.Values(p.held)
}

// consume walks the runs for the last time, and lets go of each behind it: an
// object that has been unpacked keeps its neighbours unpacked too.
func (p *page) consume() iter.Seq[cache.Run] {
	return func(yield func(cache.Run) bool) {
		i := 0
		for run := range p.runs {
			if !yield(run) {
				return
			}
			if i < len(p.held) {
				p.held[i] = cache.Run{}
			}
			i++
		}
	}
}

// pageOf is a page of objects that are all there.
func pageOf(meta listMeta, objects []*cache.Object) page {
	return page{meta: meta, runs: func(yield func(cache.Run) bool) { yield(cache.Run{Objects: objects}) }}
}

// bufferedLimit is up to how many objects of a page are held while it is made;
// a larger page is walked twice.
const bufferedLimit = 2000

// pageCutter cuts pages out of one snapshot.
type pageCutter struct {
	snap       cache.Snapshot
	rv         uint64 // as reported
	selection  *selection
	namespaced bool
}

// whole is the list without limit from a position on.
func (p pageCutter) whole(at position) page {
	return page{
		meta: listMeta{ResourceVersion: formatRV(p.rv)},
		runs: p.selection.runs(p.snap, at.from, p.namespaced),
	}
}

// cut is the page of at most limit objects from a position on.
func (p pageCutter) cut(at position, limit int64) (page, error) {
	out := page{meta: listMeta{ResourceVersion: formatRV(p.rv)}}
	// One more than fit says whether anything follows.
	out.runs = firstOf(p.selection.runs(p.snap, at.from, p.namespaced), limit+1)
	if limit <= bufferedLimit {
		out.hold()
	}
	n := int64(0)
	for run := range out.runs {
		n += int64(run.Len())
	}
	if n <= limit {
		return out, nil
	}
	n, out.runs = limit, firstOf(out.runs, limit)
	if limit <= bufferedLimit {
		out.hold()
	}
	var last cache.Run
	for run := range out.runs {
		last = run
	}
	var left *int64
	if p.selection.everything() {
		remaining := p.remaining(at, n)
		left = &remaining
		out.meta.RemainingItemCount = left
	}
	objects := last.All()
	token, err := encodePosition(p.rv, objects[len(objects)-1].Key, p.namespaced, left)
	if err != nil {
		return page{}, apierrors.NewInternalError(err)
	}
	out.meta.Continue = token
	return out, nil
}

// remaining counts what follows the n objects of a page that is not the last.
func (p pageCutter) remaining(at position, n int64) int64 {
	switch {
	case at.left != nil && *at.left > n && *at.left <= int64(p.snap.Len()):
		return *at.left - n
	case at.start == "" && p.selection.namespace == "":
		return int64(p.snap.Len()) - n
	}
	total := int64(0)
	for run := range p.selection.runs(p.snap, at.from, p.namespaced) {
		total += int64(run.Len())
	}
	return total - n
}
