package merge

import (
	"fmt"
	"strconv"
	"unique"

	"k8s.io/apimachinery/pkg/types"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/cache/compact"
	"github.com/isthmus-dev/isthmus/pkg/cache/names"
	"github.com/isthmus-dev/isthmus/pkg/cache/references"
	"github.com/isthmus-dev/isthmus/pkg/cache/wire"
)

// identity is what an object keeps from its source through every rendering.
type identity struct {
	holder   names.Holder
	uid      types.UID
	sourceRV uint64
	origin   *cache.Origin
}

func identityOf(o *cache.Object) identity {
	return identity{holder: holderOf(o), uid: o.UID, sourceRV: o.SourceRV, origin: o.Origin}
}

// render makes the object as served under a name with a new RV, of the bytes of
// the source or of those served before.
func (c *Collection) render(id identity, name string, raw []byte) (*cache.Object, error) {
	h := id.holder
	rv := c.Clock.Next()
	edit := wire.Edit{Name: name, ResourceVersion: strconv.FormatUint(rv, 10)}
	if h.Cluster != cache.ControlPlane {
		edit.SetLabels = []wire.Pair{{Key: cache.ClusterLabel, Value: string(h.Cluster)}}
	}
	if name != h.Source.Name {
		edit.SetAnnotations = []wire.Pair{{Key: cache.OriginalNameAnnotation, Value: h.Source.Name}}
	} else if h.Cluster != cache.ControlPlane {
		edit.DeleteAnnotations = []string{cache.OriginalNameAnnotation}
	}
	references.Apply(&edit, h.Cluster, h.Source.Namespace, id.origin, c.look)
	out, err := wire.Rewrite(c.Config.Resource.Encoding, raw, edit)
	if err != nil {
		return nil, fmt.Errorf("serve %s of %q: %w", h.Source, h.Cluster, err)
	}
	meta, err := wire.ParseMeta(c.Config.Resource.Encoding, out)
	if err != nil {
		return nil, fmt.Errorf("serve %s of %q: %w", h.Source, h.Cluster, err)
	}
	o := &cache.Object{
		Key:        cache.Key{Namespace: unique.Make(h.Source.Namespace).Value(), Name: name},
		Cluster:    h.Cluster,
		SourceName: h.Source.Name,
		UID:        id.uid,
		RV:         rv,
		SourceRV:   id.sourceRV,
		Labels:     compact.MakeLabels(meta.Labels),
		Fields:     noFields,
		Body:       cache.Bytes(out),
		Origin:     id.origin,
	}
	if c.table != nil {
		values, err := c.table.Read(c.Config.Resource.Encoding, out)
		if err != nil {
			return nil, fmt.Errorf("fields of %s of %q: %w", h.Source, h.Cluster, err)
		}
		o.Fields = compact.MakeFields(c.table.Names, values)
	}
	return o, nil
}

var noFields = compact.MakeFields(nil, nil)

// change serves a source's bytes under a key: ADDED where prev is nil.
func (c *Collection) change(id identity, key cache.Key, raw []byte, prev *cache.Object) error {
	o, err := c.render(id, key.Name, raw)
	if err != nil {
		return err
	}
	typ := cache.Modified
	if prev == nil {
		typ = cache.Added
	}
	c.commit(c.event(typ, o, prev))
	return nil
}

// withdraw stops serving an object: DELETED with the given last state, or with
// the state that was served where that cannot be read.
func (c *Collection) withdraw(prev *cache.Object, sourceRV uint64, raw []byte) {
	id := identityOf(prev)
	id.sourceRV = max(sourceRV, id.sourceRV)
	o, err := c.render(id, prev.Key.Name, raw)
	if err != nil {
		c.fail(err, prev.Cluster)
		o, err = c.render(id, prev.Key.Name, prev.Raw())
	}
	if err != nil { // what was served once is served with its old number
		c.fail(err, prev.Cluster)
		last := *prev
		last.RV = c.Clock.Next()
		o = &last
	}
	c.commit(c.event(cache.Deleted, o, prev))
}

// apply carries out moves of objects that are served already.
func (c *Collection) apply(moves []names.Move, why string) {
	for _, m := range moves {
		if err := c.move(m); err != nil {
			c.fail(fmt.Errorf("%s: %w", why, err), m.Holder.Cluster)
		}
	}
}

// move is a DELETED under the old name and an ADDED under the new one.
func (c *Collection) move(m names.Move) error {
	prev, ok := c.store.At(m.From)
	if !ok || holderOf(prev) != m.Holder {
		return fmt.Errorf("%s of %q is not served as %s", m.Holder.Source, m.Holder.Cluster, m.From)
	}
	c.withdraw(prev, prev.SourceRV, prev.Raw())
	c.Moved(m.Holder.Cluster, m.Holder.Source)
	c.renamed(m.Holder, m.To.Name)
	return c.change(identityOf(prev), m.To, prev.Raw(), nil)
}

// add serves an object that was not there.
func (c *Collection) add(id identity, raw []byte) error {
	moves := c.names.Add(id.holder, c.now())
	own := moves[len(moves)-1]
	for i, m := range moves {
		if m.Holder == id.holder && m.From == (cache.Key{}) {
			own = m
			moves = append(moves[:i:i], moves[i+1:]...)
			break
		}
	}
	c.apply(moves, "a name changed hands")
	// An object that others named before it came may have been expected under
	// another name. Of Nodes there are few, so they always tell.
	if own.To != own.Holder.Source || len(moves) > 1 || !c.Config.Resource.Namespaced {
		c.Moved(id.holder.Cluster, id.holder.Source)
	}
	c.renamed(id.holder, own.To.Name)
	if err := c.change(id, own.To, raw, nil); err != nil {
		c.apply(c.names.Remove(id.holder, c.now())[1:], "a name became free")
		return err
	}
	return nil
}

// renamed tells all other kinds under which name an object is served.
func (c *Collection) renamed(h names.Holder, name string) {
	if h.Cluster != cache.ControlPlane && c.kind != eventKind {
		c.Index.Renames().Set(h.Cluster, c.kind, h.Source, name)
	}
}

// eventKind is what nothing refers to.
const eventKind references.Kind = "/Event"

// remove stops serving an object and gives its name on.
func (c *Collection) remove(prev *cache.Object, sourceRV uint64, raw []byte) {
	moves := c.names.Remove(holderOf(prev), c.now())
	c.withdraw(prev, sourceRV, raw)
	if prev.Key.Name != prev.SourceName {
		c.Index.Renames().Gone(prev.Cluster, c.kind, holderOf(prev).Source, c.now())
	}
	c.apply(moves[1:], "a name became free")
}
