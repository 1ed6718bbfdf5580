package interpreter

import (
	"embed"
	"fmt"
	"io/fs"

	"sigs.k8s.io/yaml"
)

//go:embed shipped/*.yaml
var shippedFiles embed.FS

// Shipped are the customizations that come with the program, for kinds that many
// use. What a user writes for the same kind precedes them.
func Shipped() ([]*Customization, error) {
	names, err := fs.Glob(shippedFiles, "shipped/*.yaml")
	if err != nil {
		return nil, fmt.Errorf("shipped customizations: %w", err)
	}
	out := make([]*Customization, 0, len(names))
	for _, name := range names {
		raw, err := shippedFiles.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("shipped customizations: %w", err)
		}
		c := &Customization{}
		if err := yaml.UnmarshalStrict(raw, c); err != nil {
			return nil, fmt.Errorf("shipped customization %s: %w", name, err)
		}
		out = append(out, c)
	}
	return out, nil
}
