package override

import (
	"fmt"
	"strings"

	policyv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/policy/v1alpha1"
)

// image is "REGISTRY/REPOSITORY:TAG@DIGEST" in parts.
type image struct {
	registry, repository, tag, digest string
}

// parseImage: the first part is a registry when it looks like a host.
func parseImage(s string) image {
	var i image
	if at := strings.Index(s, "@"); at >= 0 {
		s, i.digest = s[:at], s[at+1:]
	}
	if colon := strings.LastIndex(s, ":"); colon > strings.LastIndex(s, "/") {
		s, i.tag = s[:colon], s[colon+1:]
	}
	first, rest, found := strings.Cut(s, "/")
	if found && (strings.ContainsAny(first, ".:") || first == "localhost") {
		i.registry, s = first, rest
	}
	i.repository = s
	return i
}

func (i image) String() string {
	s := i.repository
	if i.registry != "" {
		s = i.registry + "/" + s
	}
	if i.tag != "" {
		s += ":" + i.tag
	}
	if i.digest != "" {
		s += "@" + i.digest
	}
	return s
}

// changeImage: add appends to what is there, replace and remove set it. In a
// reference by digest the digest is the tag.
func changeImage(s string, o policyv1alpha1.ImageOverrider) (string, error) {
	i := parseImage(s)
	part := &i.repository
	switch o.Component {
	case "Registry":
		part = &i.registry
	case "Repository":
	case "Tag":
		if part = &i.tag; i.digest != "" {
			part = &i.digest
		}
		if o.Operator != policyv1alpha1.OverriderAdd && strings.Contains(o.Value, ":") {
			i.tag, part = "", &i.digest
		}
	default:
		return s, fmt.Errorf("component %q: use Registry, Repository or Tag", o.Component)
	}
	switch o.Operator {
	case policyv1alpha1.OverriderAdd:
		*part += o.Value
	case policyv1alpha1.OverriderReplace:
		*part = o.Value
	case policyv1alpha1.OverriderRemove:
		*part = ""
	default:
		return s, fmt.Errorf("operator %q: use add, remove or replace", o.Operator)
	}
	if i.repository == "" {
		return s, fmt.Errorf("nothing is left of image %q", s)
	}
	return i.String(), nil
}
