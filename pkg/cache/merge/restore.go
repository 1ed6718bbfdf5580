package merge

import (
	"strconv"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/cache/references"
	"github.com/isthmus-dev/isthmus/pkg/cache/wire"
)

// source gives the bytes of an object as its source has them.
func (c *Collection) source(o *cache.Object) ([]byte, error) {
	edit := wire.Edit{
		Name:              o.SourceName,
		ResourceVersion:   strconv.FormatUint(o.SourceRV, 10),
		DeleteLabels:      []string{cache.ClusterLabel},
		DeleteAnnotations: []string{cache.OriginalNameAnnotation},
	}
	references.Restore(&edit, c.look.Table, o.Origin)
	return wire.Rewrite(c.Config.Resource.Encoding, o.Raw(), edit)
}

// differs says whether an object would be served with other references now.
func (c *Collection) differs(o *cache.Object) bool {
	var edit wire.Edit
	references.Apply(&edit, o.Cluster, o.Key.Namespace, o.Origin, c.look)
	meta, err := wire.ParseMeta(c.Config.Resource.Encoding, o.Raw())
	if err != nil {
		return true
	}
	for _, e := range edit.Owners {
		if e.Index >= len(meta.Owners) || meta.Owners[e.Index].Name != e.Name || string(meta.Owners[e.Index].UID) != e.UID {
			return true
		}
	}
	for _, e := range edit.Texts {
		if v, err := wire.Text(c.Config.Resource.Encoding, o.Raw(), e.Path); err != nil || v != e.Value && v != "" {
			return true
		}
	}
	for _, e := range edit.Lists {
		have, err := wire.Texts(c.Config.Resource.Encoding, o.Raw(), e.Path)
		if err != nil || len(have) != len(e.Values) {
			return true
		}
		for i, v := range e.Values {
			if v != "" && have[i] != "" && have[i] != v {
				return true
			}
		}
	}
	return false
}
