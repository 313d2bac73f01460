// Browsers run no workers in pages that are read from a folder (file://): this one runs its script in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.documentElement.append(frame);
      const inner = frame.contentWindow;
      const script = frame.contentDocument.createElement("script");
      script.src = new URL(url, location.href).href;
      inner.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }));
      const ready = new Promise(resolve => { script.onload = resolve; });
      this.postMessage = data => ready.then(() => inner.dispatchEvent(new inner.MessageEvent("message", { data })));
      frame.contentDocument.head.append(script);
    }
  };
}
