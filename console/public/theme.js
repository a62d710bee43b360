// Runs before the first paint, as a file of its own because the content policy forbids inline scripts.
(function () {
  const root = document.documentElement;
  const read = (key) => {
    try {
      return localStorage.getItem(`harborage.look.${key}`);
    } catch {
      return null;
    }
  };
  const theme = read("theme");
  if (theme === "light" || theme === "dark") root.dataset.theme = theme;
  const density = read("density");
  if (density === "compact" || density === "roomy") root.dataset.density = density;
  if (read("motion") === "none") root.dataset.motion = "none";
})();
